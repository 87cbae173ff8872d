//! Files made by hand pass, and damage is found, also where all sums have been put right.

mod draft;

use draft::*;
use gannet_fsck::{check, Problem};
use twox_hash::{XxHash3_128, XxHash3_64};

fn verdict(file: &[u8]) -> Result<String, String> {
    match check(&mut &file[..]) {
        Ok(summary) => Ok(summary.to_string()),
        Err(problem @ Problem::Unreadable(_)) => panic!("of bytes in memory: {problem}"),
        Err(problem) => Err(problem.to_string()),
    }
}

#[test]
fn xxh3_is_the_published_one() {
    // Of the reference implementation, for no bytes.
    assert_eq!(XxHash3_64::oneshot(b""), 0x2d06_8005_38d3_94c2);
    assert_eq!(XxHash3_128::oneshot(b""), 0x99aa_06d3_0147_98d8_6001_c324_468d_497f);
}

#[test]
fn files_in_order() {
    let wanted = [
        "ok: 5 rows of 7 u8, squared L2, CAGRA of degree 3 from 2 entry points, rows as codes, \
         0 curves, ids, 28.7 kB",
        "ok: 4 rows of 3 f32, cosine, CAGRA of degree 2 from 1 entry point, codes of bytes, \
         2 curves, ids are row numbers, 36.9 kB",
        "ok: 3 rows of 2 f16, inner product, CAGRA of degree 2 from 1 entry point, \
         codes of floats, 0 curves, ids are row numbers, 32.8 kB",
        "ok: 2 rows of 9 bf16, squared L2, no graph, ids are row numbers, 12.4 kB",
        "ok: 0 rows of 32,768 i8, inner product, no graph, ids are row numbers, 8.3 kB",
    ];
    for (draft, wanted) in small_drafts().iter().zip(wanted) {
        assert_eq!(verdict(&draft.file()).as_deref(), Ok(wanted));
    }
    let wanted = "ok: 12,000 rows of 65 f32, cosine, no graph, ids are row numbers, 3.3 MB";
    assert_eq!(verdict(&several_chunks().file()).as_deref(), Ok(wanted));
    let mut draft = edges_across_chunks();
    assert!(verdict(&draft.file()).is_ok());
    draft.parts[1].bytes[CHUNK - 4..CHUNK + 8].fill(0xff); // a whole row
    assert!(verdict(&draft.file()).is_ok());
}

#[test]
fn no_byte_can_change() {
    let mut tried = 0;
    for draft in small_drafts() {
        let mut file = draft.file();
        for at in 0..file.len() {
            for bit in [1 << (at % 8), 0xff] {
                file[at] ^= bit;
                assert!(verdict(&file).is_err(), "byte {at}, {bit:#x}");
                file[at] ^= bit;
                tried += 1;
            }
        }
    }
    assert!(tried > 200_000, "{tried}");
}

#[test]
fn no_length_but_its_own() {
    for draft in small_drafts() {
        let file = draft.file();
        for length in (0..file.len()).step_by(13).chain(file.len() - 70..file.len()) {
            assert!(verdict(&file[..length]).is_err(), "{length} bytes");
        }
        for more in [1, 64, 4032, 4096, 8192] {
            assert!(verdict(&[&file[..], &vec![0; more]].concat()).is_err(), "{more} more");
        }
        // With the size and all sums put right as well.
        for length in (4160..file.len()).step_by(61) {
            let mut cut = file[..length].to_vec();
            put(&mut cut, 40, &(length as u64).to_le_bytes());
            seal(&mut cut);
            assert!(verdict(&cut).is_err(), "{length} bytes, sealed");
        }
    }
}

/// A change of a file that keeps its sums right, and what must be said about it.
type Case = (fn() -> Draft, usize, Vec<u8>, &'static str);

fn word(value: u32) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

fn long(value: u64) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

fn run(cases: &[Case]) {
    for (draft, at, value, wanted) in cases {
        let mut file = draft().file();
        assert_ne!(file[*at..*at + value.len()], value[..], "changes nothing: {wanted}");
        put(&mut file, *at, value);
        seal(&mut file);
        match verdict(&file) {
            Err(text) => assert!(text.contains(wanted), "{text:?}, not {wanted:?}"),
            Ok(text) => panic!("{text}; wanted {wanted:?} for byte {at}"),
        }
    }
}

#[test]
fn numbers_of_the_header() {
    let nan = f64::NAN.to_bits();
    run(&[
        (plain_bf16, 0, vec![0x8b], "damaged: header: the magic"),
        (plain_bf16, 8, word(0x0403_0201), "damaged: header: the byte order"),
        (plain_bf16, 12, vec![2], "version: version 2.0"),
        (plain_bf16, 12, vec![0], "version: version 0.0"),
        (plain_bf16, 39, vec![128], "version: features 0x8000000000000000"),
        (plain_bf16, 40, long(1 << 60), "damaged: size: 12352 bytes, but"),
        (plain_bf16, 64, word(65), "sections is 65"),
        (plain_bf16, 64, word(u32::MAX), "sections is 4294967295"),
        (plain_bf16, 68, word(1), "the word at byte 68"),
        (plain_bf16, 72, long(8192), "offset of the section table is 8192, not 4096"),
        (plain_bf16, 100, word(0), "metric is 0"),
        (plain_bf16, 100, word(4), "metric is 4"),
        (plain_bf16, 104, word(6), "element is 6"),
        (plain_bf16, 108, word(5), "graph is 5"),
        (plain_bf16, 108, word(3), "features is 0, not 1"),
        (plain_bf16, 112, long(2_147_483_647), "rows is 2147483647"),
        (plain_bf16, 112, long(u64::MAX), "rows is 18446744073709551615"),
        (plain_bf16, 112, long(2_147_483_646), "section 1 (rows): 2 items of 32 bytes"),
        (plain_bf16, 120, word(0), "dim is 0"),
        (plain_bf16, 120, word(32_769), "dim is 32769"),
        (plain_bf16, 120, word(17), "bytes from one row to the next is 32, not 48"),
        (plain_bf16, 124, word(2), "degree without a graph is 2"),
        (plain_bf16, 128, word(1), "entry points without a graph is 1"),
        (plain_bf16, 132, word(2), "ids is 2"),
        (plain_bf16, 132, word(1), "section 2 (ids): is missing"),
        (empty, 132, word(1), "ids is 1, not 0"),
        (plain_bf16, 144, long(16), "bytes from one row to the next is 16, not 32"),
        (plain_bf16, 152, long(64), "bytes from one code to the next is 64, not 0"),
        (plain_bf16, 160, word(4), "codes is 4"),
        (plain_bf16, 160, word(1), "codes without a graph is 1"),
        (plain_bf16, 164, word(1), "rounds without a graph is 1"),
        (plain_bf16, 168, word(1), "edges to reach rows without a graph is 1"),
        (plain_bf16, 172, word(0.5f32.to_bits()), "the highest recall is 0.5"),
        (plain_bf16, 176, word((-0.0f32).to_bits()), "the factor of codes is -0e0"),
        (plain_bf16, 180, word(7), "the word at byte 180"),
        (plain_bf16, 184, long(1), "the largest length"),
        (plain_bf16, 192, vec![1], "bytes from 192 on"),
        (plain_bf16, 4095, vec![1], "bytes from 192 on"),
        (cosine_floats, 124, word(1), "degree is 1"),
        (cosine_floats, 124, word(257), "degree is 257"),
        (cosine_floats, 128, word(5), "entry points is 5"),
        (cosine_floats, 128, word(0), "entry points is 0"),
        (cosine_floats, 160, word(1), "rows as codes do not go with cosine and f32"),
        (cosine_floats, 160, word(0), "no codes do not go with"),
        (bytes_with_ids, 160, word(2), "codes of bytes do not go with squared L2 and u8"),
        (cosine_floats, 172, word(f32::NAN.to_bits()), "the highest recall is NaN"),
        (cosine_floats, 172, word(1.5f32.to_bits()), "the highest recall is 1.5"),
        (cosine_floats, 176, word(f32::INFINITY.to_bits()), "the factor of codes is inf"),
        (cosine_floats, 176, word((-1f32).to_bits()), "the factor of codes is -1e0"),
        (cosine_floats, 184, long(1f64.to_bits()), "the largest length of a row is 1e0"),
        (product_halves, 184, long(nan), "the largest length of a row is NaN"),
        (product_halves, 184, long((-1f64).to_bits()), "the largest length of a row is -1e0"),
        (cosine_floats, 100, word(1), "section 4 (lengths): is there"),
        (product_halves, 100, word(3), "bytes from one code to the next is 128, not 64"),
        (bytes_with_ids, 132, word(0), "section 2 (ids): is there"),
        (bytes_with_ids, 108, word(2), "degree without a graph"),
    ]);
}

#[test]
fn entries_of_the_section_table() {
    const SECOND: usize = PAGE + 64;
    run(&[
        (plain_bf16, PAGE, word(2), "section 2 (ids): is there; the header asks for rows"),
        (plain_bf16, PAGE, word(0), "section table: type 0 comes behind 0"),
        (plain_bf16, PAGE, word(14), "version: section 14 must be known"),
        (plain_bf16, PAGE, word(1 << 20), "version: section 1048576 must be known"),
        (bytes_with_ids, SECOND, word(1), "type 1 comes behind 1"),
        (bytes_with_ids, SECOND, word(3), "section 3 (order): is there; the header asks for ids"),
        (plain_bf16, PAGE + 4, word(1), "flags, or the word"),
        (plain_bf16, PAGE + 4, word(2), "flags, or the word"),
        (plain_bf16, PAGE + 28, word(1), "flags, or the word"),
        (plain_bf16, PAGE + 8, long(4096), "begins at 4096, not at 8192"),
        (bytes_with_ids, SECOND + 8, long(8192), "begins at 8192, not at 12288"),
        (bytes_with_ids, SECOND + 8, long(16_384), "begins at 16384, not at 12288"),
        (plain_bf16, PAGE + 16, long(65), "2 items of 32 bytes are not 65 bytes"),
        (plain_bf16, PAGE + 16, long(1 << 40), "section table: a section is longer than the file"),
        (plain_bf16, PAGE + 16, long(u64::MAX), "section table: a section is longer"),
        (plain_bf16, PAGE + 24, word(0), "2 items of 0 bytes"),
        (plain_bf16, PAGE + 24, word(64), "2 items of 64 bytes are not 64 bytes"),
        (plain_bf16, PAGE + 32, long(u64::MAX / 16), "items of 32 bytes are not"),
        (plain_bf16, PAGE + 40, long(4096), "chunks of 4096 bytes"),
        (plain_bf16, PAGE + 40, long(0), "chunks of 0 bytes"),
        (plain_bf16, PAGE + 48, long(PAGE as u64 + 72), "sums at 4168, not at 4160"),
    ]);
    let mut file = plain_bf16().file();
    put(&mut file, PAGE + 24, &word(16));
    put(&mut file, PAGE + 32, &long(4));
    seal(&mut file);
    let text = verdict(&file).unwrap_err();
    assert!(text.ends_with("section 1 (rows): 4 items of 16 bytes, not 2 of 32"), "{text}");
}

/// Where sections of a draft begin.
fn offset(draft: &Draft, kind: u32) -> usize {
    let file = draft.file();
    let entries = (PAGE..).step_by(64).take(draft.parts.len());
    let entry = entries.into_iter().find(|&at| u32_at(&file, at) == kind).unwrap();
    u64_at(&file, entry + 8) as usize
}

#[test]
fn values_of_sections() {
    type Value = (fn() -> Draft, u32, usize, Vec<u8>, &'static str);
    let none = u32::MAX;
    let infinite = f32::NEG_INFINITY.to_bits();
    let cases: &[Value] = &[
        (bytes_with_ids, 1, 7, vec![1], "row 0 is not filled up"),
        (bytes_with_ids, 1, 4 * 64 + 63, vec![1], "row 4 is not filled up"),
        (bytes_with_ids, 1, 5 * 64, vec![1], "section 1 (rows): bytes behind it"),
        (cosine_floats, 1, 20, word(infinite), "row 1, column 1 is not finite"),
        (product_halves, 1, 2, vec![0, 0x7c], "row 0, column 1 is not finite"),
        (product_halves, 1, 32, vec![1, 0xfe], "row 2, column 0 is not finite"),
        (plain_bf16, 1, 48, vec![0x80, 0x7f], "row 1, column 8 is not finite"),
        (bytes_with_ids, 2, 16, long(u64::MAX), "row 2 has the id that stands for none"),
        (bytes_with_ids, 2, 8, long(6), "section 3 (order): the id at place 2"),
        (bytes_with_ids, 3, 4, word(5), "place 1 names row 5 of 5"),
        (bytes_with_ids, 3, 4, word(3), "the id at place 1"),
        (bytes_with_ids, 3, 0, words(&[1, 3]), "the id at place 1"),
        (cosine_floats, 4, 8, word(f32::NAN.to_bits()), "value 2 is NaN"),
        (cosine_floats, 4, 12, word((-1f32).to_bits()), "value 3 is -1"),
        (cosine_floats, 5, 0, word(infinite), "section 5 (centre): value 0 is -inf"),
        (cosine_floats, 6, 64 + 3, vec![1], "section 6 (codes): row 1 is not filled up"),
        (product_halves, 6, 2 * 128 + 68, word(infinite), "row 2, column 17 is not finite"),
        (product_halves, 6, 72, vec![1], "row 0 is not filled up"),
        (bytes_with_ids, 7, 0, word(5), "edge 0 of row 0 leads to row 5 of 5"),
        (bytes_with_ids, 7, 16, words(&[none, 3]), "row 1 has an edge behind"),
        (bytes_with_ids, 8, 0, word(3), "entry 3 of 5 rows, behind Some(3)"),
        (bytes_with_ids, 8, 4, word(5), "entry 5 of 5 rows"),
        (cosine_floats, 9, 0, word(0), "curve 0 has k 0"),
        (cosine_floats, 9, 392, word(1), "curve 1 has k 1, behind Some(1)"),
        (cosine_floats, 9, 4, word(0), "curve 0: 0 points"),
        (cosine_floats, 9, 4, word(25), "curve 0: 25 points"),
        (cosine_floats, 9, 4, word(2), "curve 0: unused places"),
        (cosine_floats, 9, 4, word(4), "curve 0: point 3 has beam 0"),
        (cosine_floats, 9, 8, word(0), "curve 0: point 0 has beam 0"),
        (cosine_floats, 9, 24, word(10), "curve 0: point 1 has beam 10, behind 10"),
        (cosine_floats, 9, 40, word(65_537), "curve 0: point 2 has beam 65537"),
        (cosine_floats, 9, 12, word(1), "curve 0: point 0 has recall"),
        (cosine_floats, 9, 16, long(0.75f64.to_bits()), "point 1 has recall 0.5, behind 0.75"),
        (cosine_floats, 9, 16, long((-0.5f64).to_bits()), "point 0 has recall -0.5"),
        (cosine_floats, 9, 48, long(1.5f64.to_bits()), "point 2 has recall 1.5"),
        (cosine_floats, 9, 48, long(f64::NAN.to_bits()), "point 2 has recall NaN"),
        (cosine_floats, 9, 391, vec![1], "curve 0: unused places"),
        (product_halves, 10, 8, word(infinite), "section 10 (queries): value 2 is -inf"),
        (measured_floats, 17, 12, word(2), "curve 0 of a device has 2 warps"),
        (measured_floats, 17, 16, word(2), "curve 0 of a device has 1 warps, at once 2"),
        (measured_floats, 17, 20, word(0), "curve 0 of a device has k 0"),
        (measured_floats, 17, 800 + 20, word(1), "curve 1 of a device is at"),
        (measured_floats, 17, 1600, word(89), "curve 2 of a device is at"),
        (measured_floats, 17, 24, word(25), "curve 0 of a device has 25 points"),
        (measured_floats, 17, 24, word(2), "curve 0 of a device has unused places"),
        (measured_floats, 17, 32, long(0.75f64.to_bits()), "point 1 of 0.5"),
        (measured_floats, 17, 32 + 72, long(f64::INFINITY.to_bits()), "point 2 of 0.9, inf"),
        (measured_floats, 17, 32 + 64, long(f64::NAN.to_bits()), "point 2 of NaN"),
        (measured_floats, 17, 32 + 16, long((-1f64).to_bits()), "point 0 of 0.5, -0.1, -1"),
        (first_floats, 23, 12, word(2), "curve 0 of first answers has 2 warps"),
        (first_floats, 23, 20, word(0), "curve 0 of first answers has k 0"),
        (first_floats, 23, 20, word(100), "curve 0 of first answers has k 100, not 10"),
        (first_floats, 23, 800 + 12, word(1), "curve 1 of first answers is at"),
        (first_floats, 23, 1600, word(89), "curve 2 of first answers is at"),
        (
            first_floats,
            23,
            1600,
            word(91),
            "curve 2 of first answers is of devices [91, 132, 1280]",
        ),
        (first_floats, 23, 8, word(1279), "curve 0 of first answers is of devices [90, 132, 1279]"),
        (first_floats, 23, 24, word(0), "curve 0 of first answers has no points"),
        (first_floats, 23, 24, word(25), "curve 0 of first answers has 25 points"),
        (first_floats, 23, 24, word(2), "curve 0 of first answers has unused places"),
        (first_floats, 23, 32, long(0.75f64.to_bits()), "point 1 of 0.5"),
        (first_floats, 17, 1600 + 24, word(2), "section 17 (device curves): curve 2 of a device"),
        (slack_floats, 18, 0, word(0), "curve 0 by slack has k 0"),
        (slack_floats, 18, 776, word(1), "curve 1 by slack has k 1, behind Some(1)"),
        (slack_floats, 18, 4, word(0), "curve 0 by slack: 0 points"),
        (slack_floats, 18, 4, word(25), "curve 0 by slack: 25 points"),
        (slack_floats, 18, 4, word(2), "curve 0 by slack: unused places"),
        (slack_floats, 18, 4, word(4), "curve 0 by slack: point 3 is 0, 0, 0, 0"),
        (slack_floats, 18, 775, vec![1], "curve 0 by slack: unused places"),
        (slack_floats, 18, 8, long((-0.5f64).to_bits()), "point 0 is -0.5, 0.5"),
        (slack_floats, 18, 8 + 32, long(0), "point 1 is 0, 0.5"),
        (slack_floats, 18, 8 + 64, long(3.5f64.to_bits()), "point 2 is 3.5, 0.9"),
        (slack_floats, 18, 8 + 64, long(f64::NAN.to_bits()), "point 2 is NaN"),
        (slack_floats, 18, 16, long(0.75f64.to_bits()), "point 1 is 0.05, 0.5"),
        (slack_floats, 18, 16 + 64, long(1.5f64.to_bits()), "point 2 is 0.2, 1.5"),
        (slack_floats, 18, 16 + 64, long(f64::NAN.to_bits()), "point 2 is 0.2, NaN"),
        (slack_floats, 18, 24, long((-1f64).to_bits()), "point 0 is 0, 0.5, -1"),
        (slack_floats, 18, 24, long(3e9f64.to_bits()), "point 0 is 0, 0.5, 3000000000"),
        (slack_floats, 18, 24, long(f64::NAN.to_bits()), "point 0 is 0, 0.5, NaN"),
        (slack_floats, 18, 32, long(0), "point 0 is 0, 0.5, 20.5, 0"),
        (slack_floats, 18, 32, long(65_537f64.to_bits()), "point 0 is 0, 0.5, 20.5, 65537"),
        (slack_floats, 18, 32, long(f64::NAN.to_bits()), "point 0 is 0, 0.5, 20.5, NaN"),
        (covering_floats, 24, 4, word(4), "section 24 (covering heads): entry 4 of 4 rows"),
        (covering_floats, 24, 4, word(0), "section 24 (covering heads): entry 0 of 4 rows"),
        (covering_floats, 25, 0, word(0), "section 25 (covering curves): curve 0 by slack has k 0"),
        (halved_floats, 26, 64 + 2, vec![0, 0x7c], "(half codes): row 1, column 1 is not finite"),
        (halved_floats, 26, 128, vec![1, 0xfc], "(half codes): row 2, column 0 is not finite"),
        (halved_floats, 26, 64 + 40, vec![1], "section 26 (half codes): row 1 is not filled up"),
        (product_scaled, 15, 64 + 2, vec![1], "row 1: its code is not filled up"),
        (product_scaled, 15, 128 + 32, vec![1], "row 2: its code is not filled up"),
        (product_scaled, 15, 16, word(infinite), "row 0: its terms are -inf"),
        (product_scaled, 15, 20, word(infinite), "row 0: its terms are 0.5 and -inf"),
        (product_scaled, 15, 28, word(1), "row 0: its terms are 0.5 and 0"),
        (product_scaled, 15, 24, word(2), "section 16 (scaled centres): 6 values are no 3 cells"),
        (product_scaled, 16, 8, word(infinite), "section 16 (scaled centres): value 2 is -inf"),
        (projected_bytes, 21, 0, word(0), "section 21 (projection): the factor is 0"),
        (projected_bytes, 21, 0, word((-1f32).to_bits()), "the factor is -1"),
        (projected_bytes, 21, 0, word(infinite), "the factor is -inf"),
        (projected_bytes, 21, 0, word(f32::NAN.to_bits()), "the factor is NaN"),
        (projected_bytes, 21, 4, vec![1], "bytes behind the factor are not zero"),
        (projected_bytes, 21, 63, vec![1], "bytes behind the factor are not zero"),
        (projected_bytes, 21, 64 + 4, word((1 << 27) + 1), "offset 1 is 134217729"),
        (projected_bytes, 21, 64 + 4 * 63, word(1 << 31), "offset 63 is -2147483648"),
        (
            projected_bytes,
            22,
            8,
            long(1.5f64.to_bits()),
            "section 22 (projected order): 1.5 is no share",
        ),
        (edges_across_chunks, 7, CHUNK - 4, word(none), "row 87381 has an edge behind"),
        (edges_across_chunks, 7, CHUNK, word(none), "row 87381 has an edge behind"),
        (several_chunks, 1, CHUNK + 272, word(infinite), "row 3856, column 4"),
        (several_chunks, 1, 3 * CHUNK - 4, word(infinite), "is not"),
        (several_chunks, 1, 12_000 * 272 - 1, vec![1], "row 11999 is not filled up"),
    ];
    for (draft, kind, at, value, wanted) in cases {
        let at = offset(&draft(), *kind) + at;
        run(&[(*draft, at, value.clone(), wanted)]);
    }
}

#[test]
fn chunks_in_each_others_place() {
    // Equal but for their place: the first two chunks of several_chunks' rows, made equal.
    let mut draft = several_chunks();
    let rows = &mut draft.parts[0].bytes;
    rows.fill(0);
    let file = draft.file();
    assert!(verdict(&file).is_ok());
    let sums = PAGE + 64 * 2;
    assert_ne!(file[sums..sums + 8], file[sums + 8..sums + 16]);
}

#[test]
fn the_tail() {
    let file = plain_bf16().file();
    let tail = file.len() - 64;
    let cases = [
        (0, "the magic"),
        (8, "the content id"),
        (24, "the bytes of the file"),
        (32, "the sum of the header"),
        (55, "bytes 40 to 55"),
    ];
    for (at, wanted) in cases {
        let mut damaged = file.clone();
        damaged[tail + at] ^= 1;
        let sum = XxHash3_64::oneshot(&damaged[tail..tail + 56]).to_le_bytes();
        put(&mut damaged, tail + 56, &sum);
        let text = verdict(&damaged).unwrap_err();
        assert!(text.contains("tail: ") && text.contains(wanted), "{text}");
    }
    let mut damaged = file;
    damaged[tail + 63] ^= 1;
    assert_eq!(verdict(&damaged).unwrap_err(), "damaged: tail: its sum does not fit");
}

#[test]
fn the_content_id() {
    let mut file = plain_bf16().file();
    let tail = file.len() - 64;
    file[48] ^= 1;
    file[tail + 8] ^= 1;
    put(&mut file, 88, &[0; 8]);
    let header = XxHash3_64::oneshot(&file[..PAGE]).to_le_bytes();
    put(&mut file, 88, &header);
    put(&mut file, tail + 32, &header);
    let sum = XxHash3_64::oneshot(&file[tail..tail + 56]).to_le_bytes();
    put(&mut file, tail + 56, &sum);
    assert!(verdict(&file).unwrap_err().starts_with("damaged: header: the content id"));
}

#[test]
fn what_later_versions_may_add_is_skipped() {
    let mut draft = plain_bf16();
    draft.long(16, 0x55).long(24, 0xaa);
    put(&mut draft.header, 14, &[3]); // minor version
    draft.parts.push(Part { kind: 14, flags: 1, item: 3, bytes: vec![1; 300] });
    draft.parts.push(Part { kind: u32::MAX, flags: 1, item: 1, bytes: vec![2; CHUNK + 1] });
    let file = draft.file();
    let text = verdict(&file).unwrap();
    assert!(text.contains(", skipped sections [14, 4294967295]"), "{text}");
    let mut damaged = file.clone();
    let at = file.len() - 64 - PAGE;
    damaged[at] ^= 1;
    assert!(verdict(&damaged).unwrap_err().contains("section 4294967295 (of an unknown type)"));
    // Also between two that are known.
    let mut draft = measured_floats();
    let place = draft.parts.len() - 1;
    draft.parts.insert(place, Part { kind: 14, flags: 1, item: 3, bytes: vec![1; 300] });
    let text = verdict(&draft.file()).unwrap();
    assert!(text.contains(", skipped sections [14]"), "{text}");
}

#[test]
fn too_many_or_too_few_sections() {
    let mut draft = plain_bf16();
    draft.parts.clear();
    assert!(verdict(&draft.file()).unwrap_err().ends_with("section 1 (rows): is missing"));
    let mut draft = plain_bf16();
    let bytes = Vec::new();
    draft.parts.push(Part { kind: 4, flags: 0, item: 4, bytes });
    let text = verdict(&draft.file()).unwrap_err();
    assert!(text.contains("section 4 (lengths): is there; the header asks for no further"));
    let mut draft = cosine_floats();
    let curves: Vec<u8> = (1..=5).flat_map(|k| curve(k, &[(k, 0.5)])).collect();
    draft.parts.last_mut().unwrap().bytes = curves;
    let text = verdict(&draft.file()).unwrap_err();
    assert!(text.contains("5 items of 392 bytes, not"), "{text}");
    for count in [0, 5] {
        let mut draft = slack_floats();
        let curves: Vec<u8> = (1..=count).flat_map(|k| slack_curve(k, &[(0.0, 0.5)])).collect();
        draft.parts.last_mut().unwrap().bytes = curves;
        let text = verdict(&draft.file()).unwrap_err();
        assert!(text.contains(&format!("{count} items of 776 bytes, not")), "{text}");
    }
}

#[test]
fn curves_of_first_answers_that_do_not_fit() {
    assert!(verdict(&first_floats().file()).is_ok());
    for count in [0, 65] {
        let mut draft = first_floats();
        draft.parts.last_mut().unwrap().bytes = device_curve(1, 0, 10, &[(0.5, 0.0)]).repeat(count);
        let text = verdict(&draft.file()).unwrap_err();
        assert!(text.contains(&format!("{count} items of 800 bytes, not")), "{text}");
    }
    // Without curves of devices.
    let mut draft = first_floats();
    let place = draft.parts.len() - 2;
    drop(draft.parts.remove(place));
    let text = verdict(&draft.file()).unwrap_err();
    assert!(text.contains("section 23 (first curves): is there"), "{text}");
}

#[test]
fn covering_heads_that_do_not_fit() {
    assert!(verdict(&covering_floats().file()).is_ok());
    for (part, item, count) in [(2, 4, 0), (2, 4, 8193), (1, 776, 0), (1, 776, 5)] {
        let mut draft = covering_floats();
        let place = draft.parts.len() - part;
        draft.parts[place].bytes = vec![0; item * count];
        let text = verdict(&draft.file()).unwrap_err();
        assert!(text.contains(&format!("{count} items of {item} bytes, not")), "{text}");
    }
    // One without the other.
    for (part, wanted) in [(2, "section 25 (covering curves): is there"), (1, "is missing")] {
        let mut draft = covering_floats();
        let place = draft.parts.len() - part;
        drop(draft.parts.remove(place));
        let text = verdict(&draft.file()).unwrap_err();
        assert!(text.contains(wanted), "{text}");
    }
    // Curves of walks that 1.10 alone made, which only CAGRA's graph has.
    for (draft, there) in
        [(covering_floats(), true), (measured_floats(), true), (plain_bf16(), false)]
    {
        let mut draft = draft;
        put(&mut draft.header, 32, &[4]);
        assert_eq!(verdict(&draft.file()).is_ok(), there);
    }
}

#[test]
fn half_codes_that_do_not_fit() {
    assert!(verdict(&halved_floats().file()).is_ok());
    for (item, count) in [(64, 2), (128, 3), (64, 0)] {
        let mut draft = halved_floats();
        let part = draft.parts.last_mut().unwrap();
        part.item = item;
        part.bytes = vec![0; item as usize * count];
        let text = verdict(&draft.file()).unwrap_err();
        assert!(text.contains(&format!("{count} items of {item} bytes, not 3 of 64")), "{text}");
    }
    // Beside codes by inner product, or of few columns, there are none.
    for mut draft in [product_halves(), cosine_floats()] {
        draft.part(26, 64, vec![0; 3 * 64]);
        draft.parts.last_mut().unwrap().flags = 1;
        let text = verdict(&draft.file()).unwrap_err();
        assert!(text.contains("section 26 (half codes): is there"), "{text}");
    }
}

#[test]
fn projected_codes_that_do_not_fit() {
    let change = |change: &dyn Fn(&mut Draft)| {
        let mut draft = projected_bytes();
        change(&mut draft);
        verdict(&draft.file())
    };
    let codes = 4;
    assert!(change(&|draft| drop(draft.parts.pop())).is_ok());
    for width in [32, 96, 576] {
        let text = change(&|draft| {
            draft.parts[codes].item = width;
            draft.parts[codes].bytes = vec![1; 3 * width as usize];
        });
        let wanted = format!("section 20 (projected codes): {width} bytes of a row");
        assert!(text.as_ref().unwrap_err().contains(&wanted), "{text:?}");
    }
    let text = change(&|draft| {
        draft.parts[codes].item = 128;
        draft.parts[codes].bytes = vec![1; 3 * 128];
    });
    assert!(
        text.as_ref().unwrap_err().contains("section 21 (projection): 16704 items"),
        "{text:?}"
    );
    let text = change(&|draft| drop(draft.parts.remove(codes)));
    assert!(text.as_ref().unwrap_err().contains("section 21 (projection): is there"), "{text:?}");
    let text = change(&|draft| drop(draft.parts.remove(codes + 1)));
    assert!(
        text.as_ref().unwrap_err().contains("section 22 (projected order): is there"),
        "{text:?}"
    );
    let text = change(&|draft| {
        // The order of codes that are not walked by.
        draft.parts.pop();
        let bytes = vec![0; 24];
        draft.parts.insert(codes, Part { kind: 19, flags: 1, item: 8, bytes });
    });
    assert!(text.as_ref().unwrap_err().contains("section 19 (code order): is there"), "{text:?}");
    let text = change(&|draft| draft.parts[codes].flags = 0);
    assert!(text.as_ref().unwrap_err().contains("section 20 (projected codes): flags"), "{text:?}");
    // By inner product, and of codes of floats.
    for mut draft in [product_scaled(), product_halves()] {
        let bytes = vec![1; 64 * draft.parts[0].bytes.len() / draft.parts[0].item as usize];
        draft.parts.push(Part { kind: 20, flags: 1, item: 64, bytes });
        let text = verdict(&draft.file());
        assert!(
            text.as_ref().unwrap_err().contains("section 20 (projected codes): is there"),
            "{text:?}"
        );
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of the kind that makes arithmetic go wrong, or any.
    fn nasty(&mut self) -> u64 {
        let value = self.next();
        match value >> 60 {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << (value % 64),
            3 => (1u64 << (value % 64)).wrapping_sub(1),
            4 => u64::from(u32::MAX),
            5 => value % 100_000,
            _ => value,
        }
    }
}

#[test]
fn nothing_makes_it_panic() {
    let mut random = Random(1);
    let (mut accepted, mut version) = (0, 0);
    for draft in small_drafts() {
        let file = draft.file();
        let interesting = PAGE + 64 * draft.parts.len();
        for _ in 0..20_000 {
            let mut damaged = file.clone();
            for _ in 0..1 + random.next() % 3 {
                let field = match random.next() % 4 {
                    0 => random.next() as usize % (file.len() - 8),
                    1 => random.next() as usize % 200 / 4 * 4,
                    _ => PAGE + random.next() as usize % (interesting - PAGE) / 8 * 8,
                };
                let value = random.nasty().to_le_bytes();
                put(&mut damaged, field, &value[..if random.next() % 2 == 0 { 8 } else { 4 }]);
            }
            seal(&mut damaged);
            match check(&mut &damaged[..]) {
                Ok(_) => accepted += 1,
                Err(Problem::Version(_)) => version += 1,
                Err(_) => {}
            }
        }
        for length in [0, 1, 63, 4159, 4160, 4161, 10_000] {
            let noise: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
            assert!(check(&mut &noise[..]).is_err());
            let known = length.min(file.len());
            let half = [&file[..known / 2], &noise[known / 2..]].concat();
            assert!(check(&mut &half[..]).is_err());
        }
    }
    // Some changes are legal: another seed, another writer, another edge.
    assert!(accepted > 100 && accepted < 50_000, "{accepted}");
    assert!(version > 10, "{version}");
}
