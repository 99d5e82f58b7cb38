//! Load generators that are other programs, on files, on a target in this process, and on servers
//! of other protocols.

mod fio;
mod protocols;
