//! The faults of a file.

use std::fmt;
use std::io;

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The number of its bytes.
    Size,
    /// Bytes 0 to 4095.
    Header,
    /// The section table, with the sums of the chunks.
    Table,
    /// The section of this type.
    Section(u32),
    /// The last 64 bytes.
    Tail,
}

impl Place {
    pub(crate) fn problem(self, what: impl Into<String>) -> Problem {
        Problem::Damaged { place: self, what: what.into() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Place::Size => f.write_str("size"),
            Place::Header => f.write_str("header"),
            Place::Table => f.write_str("section table"),
            Place::Section(kind) => match crate::table::name(kind) {
                Some(name) => write!(f, "section {kind} ({name})"),
                None => write!(f, "section {kind} (of an unknown type)"),
            },
            Place::Tail => f.write_str("tail"),
        }
    }
}

/// Why a file is not in order.
#[derive(Debug)]
pub enum Problem {
    /// The file is not what the specification allows.
    Damaged {
        /// Where.
        place: Place,
        /// The fault there.
        what: String,
    },
    /// The file is of a format that this reader does not know.
    Version(String),
    /// The system refuses to read it.
    Unreadable(io::Error),
}

impl Problem {
    /// One word: `damaged`, `version` or `unreadable`.
    pub fn word(&self) -> &'static str {
        match self {
            Problem::Damaged { .. } => "damaged",
            Problem::Version(_) => "version",
            Problem::Unreadable(_) => "unreadable",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.word())?;
        match self {
            Problem::Damaged { place, what } => write!(f, "{place}: {what}"),
            Problem::Version(what) => f.write_str(what),
            Problem::Unreadable(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Problem {}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Problem::Unreadable(error)
    }
}
