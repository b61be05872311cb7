//! The relay program: key files, pairing, configuration, actions and the command line.
