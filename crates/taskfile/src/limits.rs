//! Every limit of the reader in one place. A task file is input from outside: each limit turns an
//! exhausted stack or memory into an error that names the line.

/// Largest file that is read at all. Recorded workflow instances reach tens of megabytes.
pub const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Largest TOML text: its parser holds all tokens, at some 50 times the size of the text.
pub const TOML_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Levels of lists and maps inside each other: as many as an input may have on the wire.
pub const DEPTH_MAX: usize = 64;

/// Values in one file, so that `[0,0,0,..` does not take a hundred times its size in memory.
pub const VALUES_MAX: usize = 10_000_000;

/// What YAML anchors and aliases may copy, in bytes of memory: against the "billion laughs".
pub const ALIAS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Steps in one Task, counted after `repeat`.
pub const STEPS_MAX: usize = 100_000;

/// Dependencies in one Task, counted after `repeat`. Two repeated Steps of 1,000 that depend on
/// one another as a whole make a million; a join Step between them makes 2,000.
pub const EDGES_MAX: usize = 1_000_000;

/// Characters of a Task, Step, pool or handler id.
pub const ID_CHARS_MAX: usize = 128;

/// Labels of a Task.
pub const LABELS_MAX: usize = 16;

/// Characters of a label's key.
pub const LABEL_KEY_CHARS_MAX: usize = 63;

/// Characters of a label's value.
pub const LABEL_VALUE_CHARS_MAX: usize = 128;

/// Bytes of a principal's name.
pub const PRINCIPAL_BYTES_MAX: usize = 256;

/// Bytes of one Step's input, as JSON: the most that a value may have (VALUE-01).
pub const INPUT_BYTES_MAX: usize = 16 << 20;

/// Bytes of the metadata, as JSON.
pub const METADATA_BYTES_MAX: usize = 64 * 1024;

/// Bytes of text that substitution and `repeat` may produce in all.
pub const EXPANDED_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Attempts that a retry policy may name; `null` means no limit.
pub const ATTEMPTS_MAX: u64 = 1_000_000;

/// Ten years: no duration comes near overflow when added to a time.
pub const DURATION_MS_MAX: u64 = 315_576_000_000;

/// Problems that one error lists; further ones are only counted.
pub const PROBLEMS_MAX: usize = 20;
