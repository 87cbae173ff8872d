//! Tests of the crates that need files of the source tree, or each other. Each crate's own tests stand in
//! its folder and reach for nothing outside of it.
