//! Checks files of Gannet indexes: that every byte is what the format allows it to be.
//!
//! This is a second reader of the format, written from its specification (the text that opens
//! `core/storage/storage.h`) and sharing no code with the library that writes the files. Where the
//! two disagree, one of them or the text is wrong. It needs no library beside it, keeps one
//! megabyte of a file in memory at a time (and the ids, where a file has some), and no input makes
//! it panic.
//!
//! What a file alone cannot show is not checked: that lengths and codes are those of the rows, and
//! that edges are the best that a row could have.
//!
//! ```
//! let error = gannet_fsck::check(&mut &b"no file of an index"[..]).unwrap_err();
//! assert!(error.to_string().starts_with("damaged: size: 19 bytes"));
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod header;
mod problem;
mod source;
mod summary;
mod table;
mod values;

use std::path::Path;

use twox_hash::{XxHash3_128, XxHash3_64};

pub use header::{Codes, Element, Graph, Header, Metric};
pub use problem::{Place, Problem};
pub use source::{FileSource, Source};
pub use summary::{json_text, Summary};

use source::{bytes_at, u64_at, zeros};
use table::Section;
use values::Values;

/// Sections begin on multiples of this, and header and table fill up to one.
pub(crate) const PAGE: u64 = 4096;
/// A section's bytes are summed in pieces of this size.
pub(crate) const CHUNK: u64 = 1 << 20;
pub(crate) const TAIL: u64 = 64;
const TAIL_MAGIC: [u8; 8] = *b"\x8aGNT\nEOF";

/// Checks the file at `path`.
///
/// ```
/// let error = gannet_fsck::check_file("no/such/file.gannet").unwrap_err();
/// assert!(matches!(error, gannet_fsck::Problem::Unreadable(_)));
/// ```
pub fn check_file(path: impl AsRef<Path>) -> Result<Summary, Problem> {
    check(&mut FileSource::open(path.as_ref())?)
}

/// Checks the bytes of a file, in the order that the specification gives: nothing is believed
/// before what it rests on has been checked.
pub fn check(source: &mut impl Source) -> Result<Summary, Problem> {
    let size = source.len();
    if size < PAGE + TAIL {
        let what = format!("{size} bytes, fewer than the {} of the smallest file", PAGE + TAIL);
        return Err(Place::Size.problem(what));
    }
    let mut first_page = [0; PAGE as usize];
    source.read_at(0, &mut first_page)?;
    let header = Header::read(&first_page, size)?;
    let table = table::read(source, &header)?;
    check_content_id(&first_page, &table.entries)?;
    check_tail(source, &first_page, table.end)?;
    let mut known = values::Known::default();
    let mut chunk = Vec::new();
    for section in &table.sections {
        check_section(source, section, &header, &mut known, &mut chunk)?;
    }
    Ok(Summary { header, curves: known.curves, unknown: table.unknown() })
}

/// The hash of what says what the file holds, without what differs between writers.
fn check_content_id(first_page: &[u8], entries: &[u8]) -> Result<(), Problem> {
    let mut hash = XxHash3_128::new();
    hash.write(&first_page[100..]);
    hash.write(entries);
    if hash.finish_128().to_be_bytes() != bytes_at::<16>(first_page, 48) {
        return Err(Place::Header.problem("the content id is not that of header and table"));
    }
    Ok(())
}

fn check_tail(source: &mut impl Source, first_page: &[u8], at: u64) -> Result<(), Problem> {
    let mut tail = [0; TAIL as usize];
    source.read_at(at, &mut tail)?;
    let wrong = |what: &str| Err(Place::Tail.problem(what));
    if bytes_at::<8>(&tail, 0) != TAIL_MAGIC {
        return wrong("the magic is missing");
    }
    if sum(&tail[..56], 0) != u64_at(&tail, 56) {
        return wrong("its sum does not fit");
    }
    if bytes_at::<16>(&tail, 8) != bytes_at::<16>(first_page, 48) {
        return wrong("the content id is not that of the header");
    }
    if u64_at(&tail, 24) != u64_at(first_page, 40) {
        return wrong("the bytes of the file are not those of the header");
    }
    if u64_at(&tail, 32) != u64_at(first_page, 88) {
        return wrong("the sum of the header is not the header's");
    }
    if !zeros(&tail[40..56]) {
        return wrong("bytes 40 to 55 are not zero");
    }
    Ok(())
}

/// The sums of a section's chunks, the values in them, and the zeros behind them.
fn check_section(
    source: &mut impl Source,
    section: &Section,
    header: &Header,
    known: &mut values::Known,
    chunk: &mut Vec<u8>,
) -> Result<(), Problem> {
    let place = Place::Section(section.kind);
    let mut values = Values::of(section, header);
    for (number, stored) in section.sums.iter().enumerate() {
        let begin = number as u64 * CHUNK;
        chunk.resize((section.bytes - begin).min(CHUNK) as usize, 0);
        source.read_at(section.offset + begin, chunk)?;
        if sum(chunk, section.seed(number as u64)) != *stored {
            let what = format!("the sum of chunk {number} (from byte {begin}) does not fit");
            return Err(place.problem(what));
        }
        values.take(chunk, known).map_err(|what| place.problem(what))?;
    }
    values.finish(known).map_err(|what| place.problem(what))?;
    chunk.resize((section.padded_end - section.offset - section.bytes) as usize, 0);
    source.read_at(section.offset + section.bytes, chunk)?;
    if !zeros(chunk) {
        return Err(place.problem("bytes behind it are not zero"));
    }
    Ok(())
}

/// XXH3 with 64 bits.
pub(crate) fn sum(bytes: &[u8], seed: u64) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, bytes)
}

/// A number of bytes, rounded up to whole pages; `None` beyond 64 bits.
pub(crate) fn round_to_page(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(PAGE)
}
