//! What readers see.
