//! A world holds what it promises: bytes, disks, crashes, time, and the rules that it checks.

mod clerk;
mod durability;
mod faults;
mod network;
mod repeats;
mod strangers;
mod time;
