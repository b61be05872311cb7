//! The `RelayMessage` envelope and its payloads.
