//! What a target should be: the declarative configuration and the management API's types
