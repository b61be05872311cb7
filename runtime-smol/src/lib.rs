//! Drives any relay-core machine on smol.
