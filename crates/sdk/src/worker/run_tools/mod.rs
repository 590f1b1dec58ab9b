//! The tools of a worker for the command of a Step: the host of a model, for instance, which reads the Task as far as
//! its Run may see it, and reports on the Step that its Run has claimed.
//!
//! A command gets no login. If the input of its Step has `run_tools`, its worker opens a socket for it, names that in
//! [`RUN_SOCKET_ENV`], and asks the scheduler there in the name of the Run. Only processes of the command reach the
//! socket ([`peer`]), it ends with the command, and the scheduler judges every request by the scope of the Run. Leases
//! and heartbeats stay the worker's business.
//!
//! ```text
//!  command ─► tenure mcp ─► RunToolsClient ─(socket)─► RunSocket ─► StepContext ─► WorkerPort ─► scheduler
//! ```
//!
//! A command of a dispatched Run ([`hosted`](super::hosted)) has the same tools, and claims its Step by them.
//!
//! A report that ends the Step is held until the command has ended, as that of any handler (CTX-10): the Step does not
//! end while its command goes on.

mod ask;
mod client;
mod peer;
mod relay;
mod side;
mod socket;

pub use self::client::RunToolsClient;
pub(super) use self::side::{HostedTools, RunToolsOf};
pub(super) use self::socket::RunSocket;

/// The variable with the path of the socket at which a command finds the tools of its Run.
pub const RUN_SOCKET_ENV: &str = "TENURE_RUN_SOCKET";

/// The longest message of either side.
const LINE_MAX: usize = 4 << 20;
