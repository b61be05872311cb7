//! The relay program: key files, pairing, configuration, actions and the command line.

pub mod actor;
pub mod atomic;
pub mod cli;
pub mod clock;
pub mod config;
pub mod control;
pub mod failure;
pub mod guard;
pub mod held;
pub mod home;
pub mod journal;
pub mod keys;
pub mod service;
pub mod sessions;
mod sole;
