//! What a client of vfio-user and a driver of the host observe.

#[cfg(test)]
mod config;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod interrupts;
#[cfg(test)]
mod pointer;
#[cfg(test)]
mod registers;
#[cfg(test)]
mod rings;
#[cfg(test)]
mod stream;
