//! Numbers on the medium that only grow, in small steps: no drive reaches [`MAX`], and a larger
//! number is damage. So they can be counted on without an overflow.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// The largest number that is read.
const MAX: u64 = 1 << 63;

/// A number up to [`MAX`].
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    up_to(MAX, deserializer)
}

/// A number whose successor is up to [`MAX`], too.
pub(crate) fn deserialize_last<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    up_to(MAX - 1, deserializer)
}

fn up_to<'de, D: Deserializer<'de>>(most: u64, deserializer: D) -> Result<u64, D::Error> {
    let number = u64::deserialize(deserializer)?;
    if number > most {
        return Err(D::Error::custom(format_args!("no drive has counted to {number}")));
    }
    Ok(number)
}
