//! MCP over two streams of bytes, such as the standard ones of a process: a message on each line.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use rmcp::service::ServerInitializeError;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ServerHandler, ServiceExt as _};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

use crate::lines::rewritten;
use crate::{McpServer, RunServer};

/// The longest message: that of a create over HTTP.
const LINE_MAX: usize = 16 << 20;

/// Why a server on streams has ended otherwise than by the end of its input.
#[derive(Debug, thiserror::Error)]
pub enum StreamsError {
    /// What was sent first begins no conversation.
    #[error("the first message begins no conversation of MCP")]
    Begin(#[source] Box<ServerInitializeError>),
    /// The task that serves them has ended by itself.
    #[error("the server has broken off")]
    Broken(#[source] tokio::task::JoinError),
}

/// Serves one client until its input ends, or `stop` is cancelled. Whoever waits then gets its answer at once, and
/// all answers that are there are written.
///
/// # Errors
/// The first message is of no use, or the server breaks off.
pub async fn serve_streams<R, W>(
    server: McpServer,
    input: R,
    output: W,
    stop: &CancellationToken,
) -> Result<(), StreamsError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let ending = stop.child_token();
    let input = EndingInput { input, ending: ending.clone() };
    let (input, _passing) = rewritten(input);
    serve(server.ending_with(ending), input, output, stop).await
}

/// The same for the host of a model that the command of a Step has started.
///
/// # Errors
/// As those of [`serve_streams`].
pub async fn serve_run_streams<R, W>(
    server: RunServer,
    input: R,
    output: W,
    stop: &CancellationToken,
) -> Result<(), StreamsError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    serve(server, input, output, stop).await
}

async fn serve<H, R, W>(
    server: H,
    input: R,
    output: W,
    stop: &CancellationToken,
) -> Result<(), StreamsError>
where
    H: ServerHandler,
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let transport = AsyncRwTransport::new_server(input, output).with_max_line_length(LINE_MAX);
    match server.serve_with_ct(transport, stop.child_token()).await {
        Ok(running) => running.waiting().await.map(drop).map_err(StreamsError::Broken),
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => {
            Ok(())
        }
        Err(error) => Err(StreamsError::Begin(Box::new(error))),
    }
}

/// Says that the input has ended, so that nobody goes on waiting.
#[derive(Debug)]
struct EndingInput<R> {
    input: R,
    ending: CancellationToken,
}

impl<R: AsyncRead + Unpin> AsyncRead for EndingInput<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.input).poll_read(cx, buf);
        let is_over = match &read {
            Poll::Pending => false,
            Poll::Ready(Ok(())) => buf.filled().len() == before && buf.remaining() > 0,
            Poll::Ready(Err(_)) => true,
        };
        if is_over {
            self.ending.cancel();
        }
        read
    }
}
