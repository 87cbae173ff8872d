//! Files made by hand, from the specification: nothing here comes from the reader under test.
#![allow(dead_code)] // Each test file uses a part of it.

use twox_hash::{XxHash3_128, XxHash3_64};

pub const PAGE: usize = 4096;
pub const CHUNK: usize = 1 << 20;

pub struct Part {
    pub kind: u32,
    pub flags: u32,
    pub item: u32,
    pub bytes: Vec<u8>,
}

/// A file to be: the numbers of its header and its sections.
pub struct Draft {
    pub header: Vec<u8>,
    pub parts: Vec<Part>,
}

pub fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn rounded(bytes: usize) -> usize {
    bytes.div_ceil(PAGE) * PAGE
}

fn sum(bytes: &[u8], seed: u64) -> [u8; 8] {
    XxHash3_64::oneshot_with_seed(seed, bytes).to_le_bytes()
}

fn of<const N: usize, T>(values: &[T], bytes: impl Fn(&T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(bytes).collect()
}

pub fn words(values: &[u32]) -> Vec<u8> {
    of(values, |value| value.to_le_bytes())
}

pub fn longs(values: &[u64]) -> Vec<u8> {
    of(values, |value| value.to_le_bytes())
}

pub fn floats(values: &[f32]) -> Vec<u8> {
    of(values, |value| value.to_le_bytes())
}

/// Rows of `row` bytes each, filled up to `stride`.
pub fn padded(row: usize, stride: usize, bytes: &[u8]) -> Vec<u8> {
    let fill = |row: &[u8]| [row, &vec![0; stride - row.len()][..]].concat();
    bytes.chunks(row).flat_map(fill).collect()
}

pub fn curve(k: u32, points: &[(u32, f64)]) -> Vec<u8> {
    let mut bytes = [words(&[k, points.len() as u32]), vec![0; 384]].concat();
    for (place, (beam, recall)) in points.iter().enumerate() {
        put(&mut bytes, 8 + 16 * place, &beam.to_le_bytes());
        put(&mut bytes, 16 + 16 * place, &recall.to_le_bytes());
    }
    bytes
}

/// A curve of a device of compute capability 9.0, of points (recall, slack).
pub fn device_curve(warps: u32, at_once: u32, k: u32, points: &[(f64, f64)]) -> Vec<u8> {
    let head = words(&[90, 132, 1280, warps, at_once, k, points.len() as u32, 0]);
    let mut bytes = [head, vec![0; 768]].concat();
    for (place, (recall, slack)) in points.iter().enumerate() {
        for (column, number) in [*recall, *slack, 4096.0, 20.5].iter().enumerate() {
            put(&mut bytes, 32 + 32 * place + 8 * column, &number.to_le_bytes());
        }
    }
    bytes
}

/// A curve by slack, of points (slack, recall).
pub fn slack_curve(k: u32, points: &[(f64, f64)]) -> Vec<u8> {
    let mut bytes = [words(&[k, points.len() as u32]), vec![0; 768]].concat();
    for (place, (slack, recall)) in points.iter().enumerate() {
        for (column, number) in [*slack, *recall, 20.5, 16.5].iter().enumerate() {
            put(&mut bytes, 8 + 32 * place + 8 * column, &number.to_le_bytes());
        }
    }
    bytes
}

impl Draft {
    /// The header of `rows` rows of `dim` columns, without a graph.
    pub fn new(metric: u32, element: u32, rows: u64, dim: u32, stride: u64) -> Self {
        let mut draft = Draft { header: vec![0; PAGE], parts: Vec::new() };
        put(&mut draft.header, 0, b"\x8aGNT\r\n\x1a\n");
        put(&mut draft.header, 12, &[1, 0, 0, 0]); // version 1.0
        let header = [
            (8, 0x0102_0304),
            (96, 0x0000_0100),
            (100, metric),
            (104, element),
            (108, 2),
            (120, dim),
        ];
        for (at, value) in header {
            draft.word(at, value);
        }
        draft.long(72, PAGE as u64).long(112, rows).long(136, 42).long(144, stride);
        draft
    }

    pub fn word(&mut self, at: usize, value: u32) -> &mut Self {
        put(&mut self.header, at, &value.to_le_bytes());
        self
    }

    pub fn long(&mut self, at: usize, value: u64) -> &mut Self {
        put(&mut self.header, at, &value.to_le_bytes());
        self
    }

    pub fn part(&mut self, kind: u32, item: usize, bytes: Vec<u8>) -> &mut Self {
        let flags = u32::from(kind == 10);
        if kind == 10 {
            put(&mut self.header, 12, &[1, 0, 1, 0]); // version 1.1
        }
        self.parts.push(Part { kind, flags, item: item as u32, bytes });
        self
    }

    /// The bytes of the file.
    pub fn file(&self) -> Vec<u8> {
        let count = self.parts.len();
        let chunks: usize = self.parts.iter().map(|part| part.bytes.len().div_ceil(CHUNK)).sum();
        let mut file = self.header.clone();
        put(&mut file, 64, &(count as u32).to_le_bytes());
        let mut sums_at = PAGE + 64 * count;
        file.resize(rounded(sums_at + 8 * chunks), 0);
        for (place, part) in self.parts.iter().enumerate() {
            let (at, length) = (PAGE + 64 * place, part.bytes.len());
            let items = length.checked_div(part.item as usize).unwrap_or(0);
            put(&mut file, at, &words(&[part.kind, part.flags]));
            let offset = file.len() as u64;
            put(&mut file, at + 8, &longs(&[offset, length as u64]));
            put(&mut file, at + 24, &part.item.to_le_bytes());
            put(&mut file, at + 32, &longs(&[items as u64, CHUNK as u64, sums_at as u64]));
            sums_at += 8 * length.div_ceil(CHUNK);
            file.extend_from_slice(&part.bytes);
            file.resize(rounded(file.len()), 0);
        }
        file.extend_from_slice(b"\x8aGNT\nEOF");
        file.resize(file.len() + 56, 0);
        let size = file.len() as u64;
        put(&mut file, 40, &size.to_le_bytes());
        seal(&mut file);
        file
    }
}

/// Puts right every sum and every copy, so that only what the values say is wrong. Does nothing to
/// parts that the file's own numbers place outside of it.
pub fn seal(file: &mut [u8]) {
    let (size, count) = (file.len(), u32_at(file, 64) as usize);
    let entries_end = Some(PAGE + 64 * count).filter(|&end| end <= size - 64).unwrap_or(PAGE);
    let mut table_end = entries_end;
    for entry in (PAGE..entries_end).step_by(64) {
        let seed = u64::from(u32_at(file, entry)) << 48;
        let offset = u64_at(file, entry + 8) as usize;
        let length = u64_at(file, entry + 16) as usize;
        let sums = table_end;
        table_end = table_end.saturating_add(length.div_ceil(CHUNK).saturating_mul(8));
        let Some(bytes) = file.get(offset..offset.saturating_add(length)) else { continue };
        let new: Vec<u8> = bytes
            .chunks(CHUNK)
            .enumerate()
            .flat_map(|(number, chunk)| sum(chunk, seed.wrapping_add(number as u64)))
            .collect();
        if file.get(sums..sums.saturating_add(new.len())).is_some() {
            put(file, sums, &new);
            put(file, entry + 56, &sum(&new, 0));
        }
    }
    let table_end = table_end.saturating_add(PAGE - 1) / PAGE * PAGE;
    if table_end <= size - 64 {
        let table = sum(&file[PAGE..table_end], 0);
        put(file, 80, &table);
    }
    let identity = [&file[100..PAGE], &file[PAGE..entries_end]].concat();
    let identity = XxHash3_128::oneshot(&identity).to_be_bytes();
    put(file, 48, &identity);
    put(file, 88, &[0; 8]);
    let header = sum(&file[..PAGE], 0);
    put(file, 88, &header);
    let tail = size - 64;
    put(file, tail + 8, &identity);
    let length = file[40..48].to_vec();
    put(file, tail + 24, &length);
    put(file, tail + 32, &header);
    let tail_sum = sum(&file[tail..tail + 56], 0);
    put(file, tail + 56, &tail_sum);
}

/// Rows of u8 by squared L2, which serve as codes, with ids and a graph.
pub fn bytes_with_ids() -> Draft {
    let mut draft = Draft::new(1, 5, 5, 7, 64);
    draft.word(108, 1).word(124, 3).word(128, 2).word(132, 1).word(160, 1).word(164, 4);
    let rows: Vec<u8> = (1..=35).collect();
    let none = u32::MAX;
    draft
        .part(1, 64, padded(7, 64, &rows))
        .part(2, 8, longs(&[900, 5, 7_000_000_000, 0, 6]))
        .part(3, 4, words(&[3, 1, 4, 0, 2]))
        .part(7, 4, words(&[1, 2, 3, 0, none, none, none, none, none, 4, 0, none, 3, 2, 1]))
        .part(8, 4, words(&[0, 3]))
        .part(9, 392, Vec::new());
    draft
}

/// Rows of f32 by cosine, with lengths, codes of bytes and a calibration.
pub fn cosine_floats() -> Draft {
    let mut draft = Draft::new(3, 1, 4, 3, 16);
    draft.word(108, 1).word(124, 2).word(128, 1).word(160, 2).word(172, 0.97f32.to_bits());
    draft.word(176, 12.5f32.to_bits()).word(168, 3).long(152, 64);
    let rows = floats(&[3.0, 4.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1e38, -0.5, 2.0]);
    let all: Vec<(u32, f64)> = (1..=24).map(|i| (i * i * i, f64::from(i) / 24.0)).collect();
    let curves = [curve(1, &[(10, 0.5), (11, 0.5), (65_536, 1.0)]), curve(10, &all)].concat();
    draft
        .part(1, 16, padded(12, 16, &rows))
        .part(4, 4, floats(&[5.0, 1.0, 0.0, 1e38]))
        .part(5, 4, floats(&[0.5, -1.0, 0.0]))
        .part(6, 64, padded(3, 64, &[9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 255, 128]))
        .part(7, 4, words(&[1, 2, 0, 3, 0, u32::MAX, 1, 2]))
        .part(8, 4, words(&[2]))
        .part(9, 392, curves);
    draft
}

/// The same, calibrated on a device.
pub fn measured_floats() -> Draft {
    let mut draft = cosine_floats();
    let rising = [(0.5, -0.1), (0.5, 0.05), (0.9, 0.2)];
    let curves = [
        device_curve(1, 0, 1, &rising),
        device_curve(1, 0, 10, &[]),
        device_curve(16, 0, 10, &rising),
        device_curve(1, 1, 1, &rising),
    ];
    put(&mut draft.header, 14, &[2]); // minor version
    draft.part(17, 800, curves.concat());
    draft.parts.last_mut().unwrap().flags = 1;
    draft
}

/// The same with curves of the first answers of walks for a hundred.
pub fn first_floats() -> Draft {
    let mut draft = measured_floats();
    let rising = [(0.5, -0.1), (0.5, 0.05), (0.9, 0.2)];
    let curves = [
        device_curve(1, 0, 10, &rising),
        device_curve(8, 0, 10, &rising[..1]),
        device_curve(1, 1, 10, &rising),
    ];
    put(&mut draft.header, 14, &[7]); // minor version
    draft.part(23, 800, curves.concat());
    draft.parts.last_mut().unwrap().flags = 1;
    draft
}

/// Files of devices, calibrated by slack too.
pub fn slack_floats() -> Draft {
    let mut draft = measured_floats();
    let rising = [(0.0, 0.5), (0.05, 0.5), (0.2, 0.9)];
    put(&mut draft.header, 14, &[5]); // minor version
    draft.part(18, 776, [slack_curve(1, &rising), slack_curve(10, &rising[..1])].concat());
    draft.parts.last_mut().unwrap().flags = 1;
    draft
}

/// Where searches by slack may start at covering heads, too.
pub fn covering_floats() -> Draft {
    let mut draft = slack_floats();
    let rising = [(0.0, 0.5), (0.05, 0.5), (0.2, 0.9)];
    put(&mut draft.header, 14, &[11]); // minor version
    draft.part(24, 4, words(&[0, 2]));
    draft.parts.last_mut().unwrap().flags = 1;
    draft.part(25, 776, slack_curve(10, &rising));
    draft.parts.last_mut().unwrap().flags = 1;
    draft
}

/// Rows of bf16 by squared L2, with codes of floats and halves of these.
pub fn halved_floats() -> Draft {
    let mut draft = Draft::new(1, 3, 3, 20, 48);
    draft.word(108, 1).word(124, 2).word(128, 1).word(160, 3).word(176, 1f32.to_bits());
    draft.long(152, 128);
    put(&mut draft.header, 14, &[12]); // minor version
    draft
        .part(1, 48, padded(40, 48, &[0x80, 0x3f].repeat(60)))
        .part(5, 4, floats(&[0.25; 20]))
        .part(6, 128, padded(80, 128, &floats(&[-0.5; 60])))
        .part(7, 4, words(&[1, 2, 2, 0, 0, 1]))
        .part(8, 4, words(&[0]))
        .part(9, 392, Vec::new())
        .part(26, 64, padded(40, 64, &[0, 0xb8].repeat(60)));
    draft.parts.last_mut().unwrap().flags = 1;
    draft
}

/// Rows of f16 by inner product, with codes of floats: 16 columns more than the rows; and with queries.
pub fn product_halves() -> Draft {
    let mut draft = Draft::new(2, 2, 3, 2, 16);
    draft.word(108, 1).word(124, 2).word(128, 1).word(160, 3).word(176, 1f32.to_bits());
    draft.long(152, 128).long(184, 2.5f64.to_bits());
    let code: Vec<f32> = (0..54).map(|i| i as f32 - 27.0).collect();
    draft
        .part(1, 16, padded(4, 16, &[0, 0x3c, 0, 0xbc, 0xff, 0x7b, 0, 0, 1, 0, 0, 0x80]))
        .part(5, 4, floats(&[0.25; 18]))
        .part(6, 128, padded(72, 128, &floats(&code)))
        .part(7, 4, words(&[1, 2, 2, 0, 0, 1]))
        .part(8, 4, words(&[0]))
        .part(9, 392, Vec::new())
        .part(10, 8, floats(&[0.5, -1.0, 3e38, 0.0]));
    draft
}

/// The same with codes that have a scale for each row, about two cells.
pub fn product_scaled() -> Draft {
    let mut draft = product_halves();
    let mut codes = vec![0; 3 * 64];
    for row in 0..3 {
        put(&mut codes, 64 * row, &[129, 3]);
        put(&mut codes, 64 * row + 16, &0.5f32.to_le_bytes());
        put(&mut codes, 64 * row + 24, &words(&[row as u32 % 2]));
    }
    put(&mut draft.header, 14, &[4]); // minor version
    draft.part(15, 64, codes).part(16, 4, floats(&[0.0, 0.0, 1.0, -1.0, 2.0, -2.0]));
    for part in draft.parts.iter_mut().filter(|part| part.kind > 10) {
        part.flags = 0;
    }
    draft
}

/// Rows of u8 by squared L2 that serve as codes, with codes of 64 bytes that are their projection.
pub fn projected_bytes() -> Draft {
    let mut draft = Draft::new(1, 5, 3, 200, 256);
    draft.word(108, 1).word(124, 2).word(128, 1).word(160, 1);
    let rows: Vec<u8> = (0..600).map(|i| i as u8).collect();
    let codes: Vec<u8> = (0..192).map(|i| 255 - i as u8).collect();
    let offsets: Vec<u32> =
        (0..64).map(|i: i32| if i % 2 == 0 { 1 << 27 } else { -(1i32 << 27) as u32 }).collect();
    let head = [floats(&[0.25]), vec![0; 60]].concat();
    draft
        .part(1, 256, padded(200, 256, &rows))
        .part(7, 4, words(&[1, 2, 2, 0, 0, 1]))
        .part(8, 4, words(&[0]))
        .part(9, 392, Vec::new())
        .part(20, 64, codes)
        .part(21, 1, [head, words(&offsets), vec![129; 64 * 256]].concat())
        .part(22, 8, [0.98f64, 1.0, 0.5].iter().flat_map(|share| share.to_le_bytes()).collect());
    put(&mut draft.header, 14, &[6]); // minor version
    for part in draft.parts.iter_mut().filter(|part| part.kind >= 20) {
        part.flags = 1;
    }
    draft
}

/// Rows of bf16 by squared L2, without a graph.
pub fn plain_bf16() -> Draft {
    let mut draft = Draft::new(1, 3, 2, 9, 32);
    draft.part(1, 32, padded(18, 32, &[0x80, 0x3f].repeat(18)));
    draft
}

/// No rows.
pub fn empty() -> Draft {
    let mut draft = Draft::new(2, 4, 0, 32_768, 32_768);
    draft.part(1, 32_768, Vec::new());
    draft
}

/// Rows of 272 bytes: their numbers and the zeros behind them lie across the chunks' ends.
pub fn several_chunks() -> Draft {
    let (rows, dim) = (12_000, 65);
    let mut draft = Draft::new(3, 1, rows, dim, 272);
    let one: Vec<f32> = (0..dim).map(|i| i as f32).collect();
    draft.part(1, 272, padded(260, 272, &floats(&one).repeat(rows as usize))).part(
        4,
        4,
        floats(&vec![1.0; rows as usize]),
    );
    draft
}

/// Three edges for each of 90,000 rows: the first of row 87,381 is the last of its chunk.
pub fn edges_across_chunks() -> Draft {
    let rows = 90_000;
    let mut draft = Draft::new(1, 5, rows, 1, 64);
    draft.word(108, 1).word(124, 3).word(128, 1).word(160, 1);
    let edges: Vec<u32> = (0..3 * rows as u32).map(|i| i * 7 % rows as u32).collect();
    draft
        .part(1, 64, vec![0; 64 * rows as usize])
        .part(7, 4, words(&edges))
        .part(8, 4, words(&[0]))
        .part(9, 392, Vec::new());
    draft
}

pub fn small_drafts() -> [Draft; 5] {
    [bytes_with_ids(), cosine_floats(), product_halves(), plain_bf16(), empty()]
}
