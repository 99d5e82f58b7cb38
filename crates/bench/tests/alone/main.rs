//! Tests of what threads get of a machine: beside others that compute there is too little of it.

mod fair;
