//! Load generators that are other programs, on files, on a target in this process, and on servers
//! of other protocols; reports of examples.

mod examples;
mod fio;
mod protocols;
mod report;
mod report_content;
mod tools;
