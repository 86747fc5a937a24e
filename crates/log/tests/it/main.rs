//! Logs on disks that fail.

mod crash;
mod room;
