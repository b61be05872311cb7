//! Drives any relay-core machine on mio.
