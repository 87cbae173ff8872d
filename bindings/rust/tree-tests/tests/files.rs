//! Files: what is saved comes back, what is damaged is refused, and `gannet-fsck`, which shares no
//! code with the library, says the same.

#[path = "../../gannet/tests/common/mod.rs"]
mod common;
#[path = "../../gannet-fsck/tests/draft/mod.rs"]
mod draft;

use std::fs;
use std::path::Path;

use common::folder::Folder;
use common::{units, whole_numbers, Random, Whole};
use gannet::*;
use gannet_fsck::Problem;

const METRICS: [Metric; 3] = [Metric::L2, Metric::InnerProduct, Metric::Cosine];

/// The bytes of a file on a multiple of 64.
struct Aligned {
    memory: Vec<u8>,
    begin: usize,
    length: usize,
}

impl Aligned {
    fn new(bytes: &[u8]) -> Self {
        let mut memory = vec![0; bytes.len() + 64];
        let begin = memory.as_ptr().align_offset(64);
        memory[begin..begin + bytes.len()].copy_from_slice(bytes);
        Aligned { memory, begin, length: bytes.len() }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.begin..self.begin + self.length]
    }
}

fn saved(index: &Index<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    index.save_to(&mut bytes, &SaveParams::new()).unwrap();
    bytes
}

fn default_open() -> OpenParams<'static> {
    OpenParams::new()
}

/// What a search and the index's own account say.
#[derive(Debug, PartialEq)]
struct Answers {
    exact: (Vec<u64>, Vec<f32>),
    walked: (Vec<u64>, Vec<f32>),
    graph: Option<Graph>,
    beam: Option<u32>,
    info: IndexInfo,
}

fn ask<T: Element>(index: &Index<'_>, queries: Matrix<'_, T>) -> Answers {
    let neighbors = |found: Results| (found.ids().to_vec(), found.distances().to_vec());
    let graph = index.graph().ok();
    let mut info = index.info().unwrap();
    // What differs by nature.
    (info.memory_bytes, info.build_seconds, info.calibrate_seconds) = (0, 0.0, 0.0);
    Answers {
        exact: neighbors(index.search_exact(queries, 7, &SearchParams::new()).unwrap()),
        walked: neighbors(index.search(queries, 7, &SearchParams::new()).unwrap()),
        beam: graph.as_ref().and_then(|_| index.beam(10, Some(0.97)).ok()),
        graph,
        info,
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    WithIds,
    WithoutGraph,
    Borrowed,
}

fn round_trip<T: Whole + PartialEq>(
    folder: &Folder,
    metric: Metric,
    kind: Kind,
    rows: usize,
    dim: usize,
) {
    let what = format!("{metric:?}, {:?}, {rows} rows of {dim}", T::TYPE);
    let data: Vec<T> = whole_numbers(rows as u64, rows * dim);
    let queries: Vec<T> = whole_numbers(3, 5 * dim);
    let queries = Matrix::new(&queries, dim).unwrap();
    let ids: Vec<u64> = (0..rows as u64).map(|row| 1_000_000_007 * (rows as u64 - row)).collect();
    let index = Index::new(&IndexParams::new(dim).metric(metric)).unwrap();
    let (rows, params) = (Matrix::new(&data, dim).unwrap(), BuildParams::new().degree(8).seed(9));
    match kind {
        Kind::Plain => index.build(rows, &params),
        Kind::WithIds => index.build_with_ids(rows, &ids, &params),
        Kind::WithoutGraph => index.build(rows, &params.graph(GraphKind::None)),
        Kind::Borrowed => index.build_borrowed(rows, None, &params),
    }
    .unwrap();
    let wanted = ask(&index, queries);

    let path = folder.file("index.gannet");
    index.save(&path, &SaveParams::new().sync(false)).unwrap();
    let file = fs::read(&path).unwrap();
    assert!(file == saved(&index), "{what}: file and stream differ");
    verify(&path, &default_open()).unwrap();
    let checked = gannet_fsck::check_file(&path).unwrap_or_else(|e| panic!("{what}: {e}"));
    let info = file_info(&path).unwrap();
    let header = &checked.header;
    assert_eq!((info.rows, info.dim), (rows.rows() as u64, dim));
    assert_eq!((header.rows, header.dim as usize), (rows.rows() as u64, dim));
    assert_eq!((info.metric, info.element), (Some(metric), Some(T::TYPE)));
    assert_eq!((info.degree, info.entry_points), (header.degree, header.entry_points));
    assert_eq!((info.file_bytes, info.content_id), (file.len() as u64, header.content_id));
    // Codes beside the rows say how well they order them; and there are curves of a slack bound.
    let codes = index.info().unwrap().codes;
    let has_order = info.rows > 0 && codes != Some(CodeKind::Rows);
    let has_slacks = info.rows > 4 && metric != Metric::InnerProduct;
    let is_new = kind != Kind::WithoutGraph && (has_order || has_slacks);
    let format = if is_new { (1, 5) } else { (1, 0) };
    assert_eq!((info.has_ids, info.seed, info.format), (header.has_ids, header.seed, format));
    assert_eq!(info.graph == Some(GraphKind::None), kind == Kind::WithoutGraph);
    let (major, minor, patch) = info.writer;
    assert_eq!(format!("{major}.{minor}.{patch}"), version());

    let memory = Aligned::new(&file);
    let (bytes, open) = (memory.bytes(), &default_open());
    let length = bytes.len() as u64;
    // SAFETY: the file is in order and nobody changes it.
    let mapped = unsafe {
        [
            Index::open_lazy(&path, open),
            Index::open_trusted(&path, open),
            Index::open_borrowed_trusted(bytes, open),
        ]
    };
    let others = [
        Index::open(&path, open),
        Index::open_memory(&memory.memory[memory.begin..][..memory.length], open),
        Index::open_borrowed(bytes, open),
        Index::open_from(&mut &file[..], length, open),
    ];
    for opened in mapped.into_iter().chain(others) {
        let opened = opened.unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(ask(&opened, queries), wanted, "{what}");
        for id in [0, 1, 1_000_000_007] {
            assert_eq!(opened.get::<T>(id).unwrap(), index.get::<T>(id).unwrap());
        }
        assert!(saved(&opened) == file, "{what}: saved again it is another file");
        let again = opened.build(rows, &BuildParams::new()).unwrap_err();
        assert_eq!(again.status(), Status::State);
    }
}

fn round_trips<T: Whole + PartialEq>(name: &str) {
    let folder = Folder::new(name);
    for metric in METRICS {
        for kind in [Kind::Plain, Kind::WithIds, Kind::WithoutGraph, Kind::Borrowed] {
            for (rows, dim) in [(0, 3), (1, 1), (33, 7), (700, 24)] {
                round_trip::<T>(&folder, metric, kind, rows, dim);
            }
        }
    }
    assert_eq!(folder.names(), ["index.gannet"]);
}

#[test]
fn round_trips_of_f32() {
    round_trips::<f32>("f32");
}

#[test]
fn round_trips_of_f16() {
    round_trips::<F16>("f16");
}

#[test]
fn round_trips_of_bf16() {
    round_trips::<Bf16>("bf16");
}

#[test]
fn round_trips_of_i8() {
    round_trips::<i8>("i8");
}

#[test]
fn round_trips_of_u8() {
    round_trips::<u8>("u8");
}

#[test]
fn sections_of_many_chunks() {
    let folder = Folder::new("chunks");
    round_trip::<f32>(&folder, Metric::Cosine, Kind::WithIds, 1100, 485);
    round_trip::<f32>(&folder, Metric::InnerProduct, Kind::Borrowed, 1100, 485);

    let file = draft::edges_across_chunks().file();
    assert!(saved(&Index::open_memory(&file, &default_open()).unwrap()).len() == file.len());
    let edges = u64::from_le_bytes(file[4096 + 64 + 8..][..8].try_into().unwrap()) as usize;
    for at in [draft::CHUNK - 4, draft::CHUNK] {
        let mut changed = file.clone();
        draft::put(&mut changed, edges + at, &ROW_NONE.to_le_bytes());
        draft::seal(&mut changed);
        let error = Index::open_memory(&changed, &default_open()).unwrap_err();
        assert!(error.message().contains("behind an unused place"), "{error}");
        let length = changed.len() as u64;
        let error = Index::open_from(&mut &changed[..], length, &default_open()).unwrap_err();
        assert!(error.message().contains("behind an unused place"), "{error}");
        assert!(fsck(&changed).unwrap_err().to_string().contains("behind an unused place"));
    }
}

/// An index with most kinds of sections.
fn rich_file() -> Vec<u8> {
    let data = units(5, 600 * 6);
    let ids: Vec<u64> = (0..600).map(|row| row * row + 7).collect();
    let index = Index::new(&IndexParams::new(6).metric(Metric::Cosine)).unwrap();
    let rows = Matrix::new(&data, 6).unwrap();
    index.build_with_ids(rows, &ids, &BuildParams::new().degree(8)).unwrap();
    saved(&index)
}

fn fsck(file: &[u8]) -> std::result::Result<(), Problem> {
    gannet_fsck::check(&mut &file[..]).map(|_| ())
}

#[test]
fn damage_is_refused() {
    let folder = Folder::new("damage");
    let path = folder.file("damaged.gannet");
    let file = rich_file();
    let mut random = Random(1);
    let places: Vec<usize> = (0..4160)
        .step_by(7)
        .chain((0..3000).map(|_| random.next() as usize % file.len()))
        .chain(file.len() - 64..file.len())
        .collect();
    for (round, &at) in places.iter().enumerate() {
        let mut damaged = file.clone();
        damaged[at] ^= 1 << (random.next() % 8);
        let error = Index::open_memory(&damaged, &default_open()).unwrap_err();
        let wanted = match fsck(&damaged) {
            Err(Problem::Version(_)) => Status::Version,
            Err(Problem::Damaged { .. }) => Status::Corrupt,
            other => panic!("byte {at}: {other:?}"),
        };
        assert_eq!(error.status(), wanted, "byte {at}: {error}");
        assert!(error.message().len() > 10);
        if round % 50 == 0 {
            fs::write(&path, &damaged).unwrap();
            assert_eq!(verify(&path, &default_open()).unwrap_err().status(), wanted);
            assert_eq!(Index::open(&path, &default_open()).unwrap_err().status(), wanted);
            let stream = &mut &damaged[..];
            let error = Index::open_from(stream, file.len() as u64, &default_open()).unwrap_err();
            assert_eq!(error.status(), wanted);
        }
    }
    for length in (0..file.len()).step_by(97) {
        let cut = &file[..length];
        assert_eq!(Index::open_memory(cut, &default_open()).unwrap_err().status(), Status::Corrupt);
        assert!(matches!(fsck(cut), Err(Problem::Damaged { .. })), "{length}");
        let error = Index::open_from(&mut &cut[..], file.len() as u64, &default_open());
        assert_eq!(error.unwrap_err().status(), Status::Corrupt);
    }
}

#[test]
fn an_error_names_the_place() {
    let mut file = rich_file();
    let at = file.windows(4).position(|four| four == units(5, 1)[0].to_le_bytes()).unwrap();
    file[at] ^= 1;
    let error = Index::open_memory(&file, &default_open()).unwrap_err();
    assert!(error.message().contains("section 1 (rows)"), "{error}");
    let error = fsck(&file).unwrap_err().to_string();
    assert!(error.starts_with("damaged: section 1 (rows): "), "{error}");
}

#[test]
fn lazily_opened_damage_is_met_when_it_is_read() {
    let file = rich_file();
    let at = file.windows(4).position(|four| four == units(5, 1)[0].to_le_bytes()).unwrap();
    let mut memory = Aligned::new(&file);
    let begin = memory.begin;
    memory.memory[begin + at] ^= 1;
    let opened = Index::open_borrowed(memory.bytes(), &default_open()).unwrap();
    let query = units(8, 6);
    let query = Matrix::one(&query).unwrap();
    for _ in 0..2 {
        let error = opened.search_exact(query, 1, &SearchParams::new()).unwrap_err();
        assert_eq!(error.status(), Status::Corrupt);
        let mut out = Vec::new();
        let error = opened.save_to(&mut out, &SaveParams::new()).unwrap_err();
        assert_eq!((error.status(), out.len()), (Status::Corrupt, 0));
    }
}

/// Files that were made by hand from the specification.
#[test]
fn the_library_opens_what_it_has_not_written() {
    for draft in draft::small_drafts().into_iter().chain([draft::several_chunks()]) {
        let file = draft.file();
        fsck(&file).unwrap();
        let index = Index::open_memory(&file, &default_open()).unwrap();
        let info = index.info().unwrap();
        assert_eq!(info.dim, u32_of(&file, 120) as usize);
        // Written by the library it is another file in its version alone, or none at all.
        let mut again = saved(&index);
        let writer = file[96..100].to_vec();
        draft::put(&mut again, 96, &writer);
        draft::seal(&mut again);
        assert!(again == file, "rows of {:?}", info.element);
    }
    let file = draft::bytes_with_ids().file();
    let index = Index::open_memory(&file, &default_open()).unwrap();
    assert_eq!(index.get::<u8>(7_000_000_000).unwrap(), Some(vec![15, 16, 17, 18, 19, 20, 21]));
    let found = index.search(Matrix::one(&[29u8; 7]).unwrap(), 2, &SearchParams::new()).unwrap();
    assert_eq!(found.ids(), [6, 0]);
}

fn u32_of(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Changes of values under good sums: the library opens what the independent reader takes and
/// nothing else, and what it opens it saves as it was.
#[test]
fn the_library_and_fsck_agree() {
    let mut random = Random(7);
    let (mut both, mut neither) = (0, 0);
    let mut files: Vec<Vec<u8>> = draft::small_drafts().iter().map(|draft| draft.file()).collect();
    files.push(rich_file());
    for file in &files {
        let sections = u32_of(file, 64) as usize;
        for _ in 0..3000 {
            let mut changed = file.clone();
            let at = match random.next() % 4 {
                0 => 64 + random.next() as usize % 128,
                1 => 4096 + random.next() as usize % (64 * sections),
                _ => 8192 + random.next() as usize % (file.len() - 8192),
            };
            let value = match random.next() % 4 {
                0 => 0,
                1 => u64::MAX,
                2 => random.next() % 64,
                _ => random.next(),
            };
            let width = [1, 4, 8][random.next() as usize % 3];
            draft::put(&mut changed, at / width * width, &value.to_le_bytes()[..width]);
            draft::seal(&mut changed);
            let opened = Index::open_memory(&changed, &default_open());
            match (fsck(&changed), opened) {
                (Ok(()), Ok(index)) => {
                    both += 1;
                    // Another version may have written it; features and what is unknown are lost.
                    let kinds =
                        (0..u32_of(&changed, 64) as usize).map(|i| u32_of(&changed, 4096 + 64 * i));
                    if kinds.max() > Some(10) {
                        continue;
                    }
                    let mut again = saved(&index);
                    draft::put(&mut again, 14, &changed[14..32]);
                    draft::put(&mut again, 96, &changed[96..100]);
                    draft::seal(&mut again);
                    assert!(again == changed, "byte {at}: saved again it is another file");
                }
                (Err(_), Err(error)) => {
                    neither += 1;
                    let known = matches!(error.status(), Status::Corrupt | Status::Version);
                    assert!(known, "byte {at}: {error}");
                }
                (Ok(()), Err(error)) => panic!("byte {at}: the library says {error}"),
                (Err(problem), Ok(_)) => panic!("byte {at}: gannet-fsck says {problem}"),
            }
        }
    }
    assert!(both > 100 && neither > 3000, "{both}, {neither}");
}

/// An input of the fuzz targets as a file: u16 zeros, u16 count, count bytes, again and again.
fn unpacked(mut input: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    while let [a, b, c, d, rest @ ..] = input {
        let zeros = usize::from(u16::from_le_bytes([*a, *b]));
        let count = usize::from(u16::from_le_bytes([*c, *d])).min(rest.len());
        file.resize(file.len() + zeros, 0);
        file.extend_from_slice(&rest[..count]);
        input = &rest[count..];
    }
    file
}

#[test]
fn the_library_and_fsck_agree_about_the_inputs_of_the_fuzz_targets() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/fuzz/corpus");
    let folders = fs::read_dir(&corpus).unwrap().map(|folder| folder.unwrap().path());
    let inputs: Vec<_> = folders.flat_map(|folder| fs::read_dir(folder).unwrap()).collect();
    assert!(!inputs.is_empty());
    for input in inputs {
        let path = input.unwrap().path();
        let file = unpacked(&fs::read(&path).unwrap());
        let mut sealed = file.clone();
        if sealed.len() >= 4160 {
            draft::put(&mut sealed, 40, &(file.len() as u64).to_le_bytes());
            draft::seal(&mut sealed);
        }
        for file in [file, sealed] {
            let (library, second) = (Index::open_memory(&file, &default_open()), fsck(&file));
            let both = format!("{}: {:?}, {second:?}", path.display(), library.as_ref().err());
            assert_eq!(library.is_ok(), second.is_ok(), "{both}");
        }
    }
}

#[test]
fn golden_files_pass() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/golden/files");
    let mut passed = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "gannet") {
            gannet_fsck::check_file(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            verify(&path, &default_open()).unwrap();
            passed += 1;
        }
    }
    assert!(passed > 0);
}

#[test]
fn another_version() {
    let mut file = rich_file();
    file[12] = 2;
    let error = Index::open_memory(&file, &default_open()).unwrap_err();
    assert_eq!((error.status(), error.status().name()), (Status::Version, "ANN_VERSION"));
    assert!(matches!(fsck(&file), Err(Problem::Version(_))));
}
