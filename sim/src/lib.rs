//! Runs relay-core machines in virtual time: pipes, disks, crashes, one hash for a run.
