//! A drive's medium through its public interface.

#[cfg(test)]
mod bad;
#[cfg(test)]
mod basics;
#[cfg(test)]
mod crowd;
#[cfg(test)]
mod cuts;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod edges;
#[cfg(test)]
mod encryption;
#[cfg(test)]
mod erase;
#[cfg(test)]
mod files;
#[cfg(test)]
mod flushed;
#[cfg(test)]
mod flux;
#[cfg(test)]
mod frames;
#[cfg(test)]
mod journal;
#[cfg(test)]
mod kill;
#[cfg(test)]
mod marks;
#[cfg(test)]
mod neighbours;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod stepped;
#[cfg(test)]
mod tagged;
#[cfg(test)]
mod trouble;
