//! The choice between the two kinds of handles.

/// Evaluates an expression with the handle of a module's `Inner`, of whichever kind it is.
macro_rules! either {
    ($inner:expr, $handle:ident => $value:expr) => {
        match $inner {
            Inner::System($handle) => $value,
            Inner::Simulated($handle) => $value,
        }
    };
}

pub(crate) use either;
