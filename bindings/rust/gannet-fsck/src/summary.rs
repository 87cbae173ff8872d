//! The summary of a file.

use std::fmt;
use std::path::Path;

use crate::header::{Graph, Header};
use crate::Problem;

/// A file that is in order.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// The fields of its header.
    pub header: Header,
    /// Curves of the calibration.
    pub curves: u64,
    /// Types of sections that this reader does not know and may skip.
    pub unknown: Vec<u32>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let h = &self.header;
        write!(f, "ok: {} of {} {}", counted(h.rows, "row"), grouped(h.dim), h.element.name())?;
        write!(f, ", {}, {}", h.metric.name(), h.graph.name())?;
        if h.graph != Graph::None {
            let entries = counted(h.entry_points, "entry point");
            write!(f, " of degree {} from {entries}", h.degree)?;
            write!(f, ", {}, {}", h.codes.name(), counted(self.curves, "curve"))?;
        }
        f.write_str(if h.has_ids { ", ids" } else { ", ids are row numbers" })?;
        if !self.unknown.is_empty() {
            write!(f, ", skipped sections {:?}", self.unknown)?;
        }
        write!(f, ", {}", size_text(h.file_bytes))
    }
}

/// One line of JSON about the file at `path`.
///
/// ```
/// let checked = gannet_fsck::check(&mut &b""[..]);
/// let text = gannet_fsck::json_text("a \"b\"".as_ref(), &checked);
/// assert!(text.starts_with(r#"{"file":"a \"b\"","outcome":"damaged","place":"size","#), "{text}");
/// ```
pub fn json_text(path: &Path, checked: &Result<Summary, Problem>) -> String {
    let file = quoted(&path.to_string_lossy());
    match checked {
        Ok(summary) => format!("{{\"file\":{file},\"outcome\":\"ok\",{}}}", summary.json_fields()),
        Err(problem) => {
            let (place, what) = match problem {
                Problem::Damaged { place, what } => (quoted(&place.to_string()), what.clone()),
                Problem::Version(what) => ("null".into(), what.clone()),
                Problem::Unreadable(error) => ("null".into(), error.to_string()),
            };
            let (outcome, what) = (problem.word(), quoted(&what));
            format!(
                "{{\"file\":{file},\"outcome\":\"{outcome}\",\"place\":{place},\"what\":{what}}}"
            )
        }
    }
}

impl Summary {
    fn json_fields(&self) -> String {
        let h = &self.header;
        let content_id: String = h.content_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let fields = [
            ("format", quoted(&format!("1.{}", h.minor))),
            ("bytes", h.file_bytes.to_string()),
            ("rows", h.rows.to_string()),
            ("dim", h.dim.to_string()),
            ("element", quoted(h.element.name())),
            ("metric", quoted(h.metric.name())),
            ("graph", quoted(h.graph.name())),
            ("degree", h.degree.to_string()),
            ("entry_points", h.entry_points.to_string()),
            ("codes", quoted(h.codes.name())),
            ("curves", self.curves.to_string()),
            ("recall_max", h.recall_max.to_string()),
            ("has_ids", h.has_ids.to_string()),
            ("seed", h.seed.to_string()),
            ("writer", quoted(&version_text(h.writer))),
            ("content_id", quoted(&content_id)),
            ("skipped_sections", format!("{:?}", self.unknown)),
        ];
        fields.map(|(name, value)| format!("\"{name}\":{value}")).join(",")
    }
}

fn version_text(packed: u32) -> String {
    format!("{}.{}.{}", packed >> 16, packed >> 8 & 0xff, packed & 0xff)
}

/// Digits in groups of three.
fn grouped(number: impl Into<u64>) -> String {
    let digits = number.into().to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place != 0 && (digits.len() - place) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn counted(number: impl Into<u64>, what: &str) -> String {
    let number = number.into();
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
}

fn size_text(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    let mut value = bytes as f64 / 1e3;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1e3;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            _ if letter.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(letter))),
            _ => out.push(letter),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_to_be_read() {
        let texts = [0u64, 999, 1000, 2_147_483_646].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "2,147,483,646"]);
        let texts = [4160, 999_949, 999_950, 2_600_000, 3 << 40, u64::MAX].map(size_text);
        let wanted = ["4.2 kB", "999.9 kB", "1.0 MB", "2.6 MB", "3.3 TB", "18446744.1 TB"];
        assert_eq!(texts, wanted);
        assert_eq!([0u32, 1, 2].map(|n| counted(n, "row")), ["0 rows", "1 row", "2 rows"]);
        assert_eq!(version_text(0x0001_0203), "1.2.3");
        assert_eq!(quoted("a\"\\\n\u{e9}"), "\"a\\\"\\\\\\u000a\u{e9}\"");
    }
}
