//! Files: what is refused, streams and their errors, and saves beside searches. What files hold is
//! checked in `tree-tests`, beside `gannet-fsck`.

mod common;

use std::error::Error as _;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::folder::Folder;
use common::{built, units};
use gannet::*;

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

#[test]
fn misuse() {
    let folder = Folder::new("misuse");
    let path = folder.file("index.gannet");
    let index = built(&units(1, 300), 3);
    let save = SaveParams::new().sync(false);
    index.save(&path, &save).unwrap();

    let unbuilt = Index::new(&IndexParams::new(3)).unwrap();
    assert_eq!(unbuilt.save(&path, &save).unwrap_err().status(), Status::State);
    assert_eq!(unbuilt.save_to(&mut Vec::new(), &save).unwrap_err().status(), Status::State);
    verify(&path, &default_open()).unwrap();
    for bad in ["", "a\0b", "no/such/folder/"] {
        let error = index.save(bad, &save).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument, "{bad:?}: {error}");
    }
    assert_eq!(verify("a\0b", &default_open()).unwrap_err().status(), Status::InvalidArgument);
    assert_eq!(file_info("a\0b").unwrap_err().status(), Status::InvalidArgument);

    let missing = folder.file("missing/index.gannet");
    for error in [
        index.save(&missing, &save).unwrap_err(),
        Index::open(&missing, &default_open()).unwrap_err(),
        verify(&missing, &default_open()).unwrap_err(),
        file_info(&missing).unwrap_err(),
    ] {
        assert_eq!(error.status(), Status::Io, "{error}");
        let system = io::Error::from_raw_os_error(error.os_error().unwrap());
        assert_eq!(system.kind(), ErrorKind::NotFound);
        assert!(error.source().is_none());
    }
    assert_eq!(Index::open(folder.path(), &default_open()).unwrap_err().status(), Status::Io);

    for wrong in [
        OpenParams::new().expect_dim(4),
        OpenParams::new().expect_dim(usize::MAX),
        OpenParams::new().expect_metric(Metric::Cosine),
        OpenParams::new().expect_element(ElementType::U8),
    ] {
        for error in [
            Index::open(&path, &wrong).unwrap_err(),
            verify(&path, &wrong).unwrap_err(),
            Index::open_memory(&fs::read(&path).unwrap(), &wrong).unwrap_err(),
        ] {
            assert_eq!(error.status(), Status::InvalidArgument);
            assert!(error.message().contains("expect_"), "{error}");
        }
    }
    let right = OpenParams::new().expect_dim(3).expect_metric(Metric::L2);
    Index::open(&path, &right.expect_element(ElementType::F32).threads(2)).unwrap();

    let memory = Aligned::new(&[&[0], &fs::read(&path).unwrap()[..]].concat());
    let error = Index::open_borrowed(&memory.bytes()[1..], &default_open()).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    Index::open_memory(&memory.bytes()[1..], &default_open()).unwrap();
    assert_eq!(Index::open_memory(&[], &default_open()).unwrap_err().status(), Status::Corrupt);
    assert!(Index::open_borrowed(&[], &default_open()).is_err());
    assert_eq!(folder.names(), ["index.gannet"]);
}

// --- Streams of the caller --------------------------------------------------------------------------

/// Moves a few bytes at a time, and does as it is told once `left` bytes are through.
struct Odd {
    bytes: Vec<u8>,
    at: usize,
    left: usize,
    then: fn(usize) -> io::Result<usize>,
    interrupt: bool,
}

impl Odd {
    fn new(bytes: Vec<u8>, left: usize, then: fn(usize) -> io::Result<usize>) -> Self {
        Odd { bytes, at: 0, left, then, interrupt: false }
    }

    fn count(&mut self, wanted: usize) -> io::Result<usize> {
        self.interrupt = !self.interrupt;
        if self.interrupt {
            return Err(ErrorKind::Interrupted.into());
        }
        if self.left == 0 {
            return (self.then)(wanted);
        }
        let count = wanted.min(1777).min(self.left);
        self.left -= count;
        Ok(count)
    }
}

impl Write for Odd {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let count = self.count(data.len())?;
        self.bytes.extend_from_slice(data.get(..count).unwrap_or_default());
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Odd {
    fn read(&mut self, data: &mut [u8]) -> io::Result<usize> {
        let count = self.count(data.len())?;
        if count <= data.len() {
            assert!(data.iter().all(|&byte| byte == 0));
            data[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
            self.at += count;
        }
        Ok(count)
    }
}

#[derive(Debug)]
struct Mine;

impl std::fmt::Display for Mine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("out of paper")
    }
}

impl std::error::Error for Mine {}

/// What a stream can do wrong, and the error number that comes of it.
type Wrong = (fn(usize) -> io::Result<usize>, Option<i32>);

const WRONGS: [Wrong; 2] = [
    (|_| Err(io::Error::from_raw_os_error(28)), Some(28)),
    (|_| Err(io::Error::other(Mine)), None),
];

fn check_stream_error(error: &Error, code: Option<i32>) {
    assert_eq!((error.status(), error.os_error()), (Status::Io, code), "{error}");
    if code.is_none() {
        assert!(error.message().contains("out of paper"), "{error}");
        let source = error.source().unwrap().downcast_ref::<io::Error>().unwrap();
        assert!(source.get_ref().unwrap().is::<Mine>());
    }
}

#[test]
fn streams_in_pieces_and_their_errors() {
    let index = built(&units(1, 3000), 3);
    let file = saved(&index);
    let fine: fn(usize) -> io::Result<usize> = Ok;
    let mut odd = Odd::new(Vec::new(), usize::MAX, fine);
    index.save_to(&mut odd, &SaveParams::new()).unwrap();
    assert!(odd.bytes == file);
    let length = file.len() as u64;
    let mut reader = Odd::new(file.clone(), file.len(), fine);
    // Also through a trait object.
    let stream: &mut dyn Read = &mut reader;
    let opened = Index::open_from(stream, length, &default_open()).unwrap();
    assert!(saved(&opened) == file);

    for (then, code) in WRONGS {
        for left in [0, 1, 5000, file.len() - 1] {
            let mut writer = Odd::new(Vec::new(), left, then);
            let error = index.save_to(&mut writer, &SaveParams::new()).unwrap_err();
            check_stream_error(&error, code);
            let mut reader = Odd::new(file.clone(), left, then);
            let error = Index::open_from(&mut reader, length, &default_open()).unwrap_err();
            check_stream_error(&error, code);
        }
    }
    // Full, and at its end too soon.
    let mut room = [0; 5000];
    let error = index.save_to(&mut &mut room[..], &SaveParams::new()).unwrap_err();
    let source = error.source().unwrap().downcast_ref::<io::Error>().unwrap();
    assert_eq!((error.status(), source.kind()), (Status::Io, ErrorKind::WriteZero));
    assert!(room == file[..5000]);
    let error = Index::open_from(&mut &file[..5000], length, &default_open()).unwrap_err();
    assert_eq!(error.status(), Status::Corrupt);
    // What follows the file is left in the stream.
    let more = [&file[..], b"more"].concat();
    let mut rest = &more[..];
    Index::open_from(&mut rest, length, &default_open()).unwrap();
    assert_eq!(rest, b"more");
}

/// Claims to have moved more than it was given.
struct Boaster<S> {
    stream: S,
    claim: fn(usize) -> usize,
}

impl<S: Read> Read for Boaster<S> {
    fn read(&mut self, data: &mut [u8]) -> io::Result<usize> {
        Ok((self.claim)(self.stream.read(data)?))
    }
}

impl Write for Boaster<Vec<u8>> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Ok((self.claim)(self.stream.write(data)?))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn streams_that_claim_too_much_are_not_believed() {
    let index = built(&units(1, 40_000), 4); // more than is read at once
    let file = saved(&index);
    let length = file.len() as u64;
    for claim in [|moved| moved + 1, |moved| moved * 2, |_| 1 << 20, |_| usize::MAX] {
        // All room is filled but in the end, so that the file comes whole as long as it fills pieces.
        let mut reader = Boaster { stream: &file[..], claim };
        match Index::open_from(&mut reader, length, &default_open()) {
            Ok(opened) => assert!(saved(&opened) == file),
            Err(error) => assert_eq!(error.status(), Status::Corrupt, "{error}"),
        }
        // Nothing is filled: what the library gets is zeros and no memory of anybody's.
        let mut nothing = Boaster { stream: io::empty(), claim };
        let error = Index::open_from(&mut nothing, length, &default_open()).unwrap_err();
        assert_eq!(error.status(), Status::Corrupt, "{error}");
        let mut writer = Boaster { stream: Vec::new(), claim };
        let error = index.save_to(&mut writer, &SaveParams::new()).unwrap_err();
        assert_eq!(error.status(), Status::Io, "{error}");
        assert!(error.message().contains("claims to have written"), "{error}");
    }
}

#[test]
fn a_panic_of_a_stream_goes_on() {
    let index = built(&units(1, 3000), 3);
    let file = saved(&index);
    let panics: fn(usize) -> io::Result<usize> = |_| panic!("the printer burns");
    for left in [0, 6000] {
        let mut writer = Odd::new(Vec::new(), left, panics);
        let writing = || index.save_to(&mut writer, &SaveParams::new());
        let payload = catch_unwind(AssertUnwindSafe(writing)).unwrap_err();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"the printer burns"));
        let mut reader = Odd::new(file.clone(), left, panics);
        let reading = || Index::open_from(&mut reader, file.len() as u64, &default_open());
        let payload = catch_unwind(AssertUnwindSafe(reading)).unwrap_err();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"the printer burns"));
    }
    assert!(saved(&index) == file);
}

// --- Threads ------------------------------------------------------------------------------------------

#[test]
fn files_are_cancelled() {
    let folder = Folder::new("cancel");
    let path = folder.file("index.gannet");
    let index = built(&units(1, 300), 3);
    let monitor = Monitor::new().unwrap();
    let (save, open) = (SaveParams::new().monitor(&monitor), OpenParams::new().monitor(&monitor));
    index.save(&path, &save).unwrap();
    assert_eq!(monitor.progress().unwrap().fraction, 1.0);
    let file = fs::read(&path).unwrap();
    monitor.cancel();
    let stream = &mut &file[..];
    for error in [
        index.save(folder.file("never"), &save).unwrap_err(),
        index.save_to(&mut Vec::new(), &save).unwrap_err(),
        Index::open(&path, &open).unwrap_err(),
        Index::open_memory(&file, &open).unwrap_err(),
        Index::open_from(stream, file.len() as u64, &open).unwrap_err(),
        verify(&path, &open).unwrap_err(),
    ] {
        assert_eq!(error.status(), Status::Cancelled);
    }
    monitor.reset();
    monitor.set_deadline(Duration::ZERO);
    assert_eq!(index.save(&path, &save).unwrap_err().status(), Status::Deadline);
    assert_eq!(Index::open(&path, &open).unwrap_err().status(), Status::Deadline);
    assert_eq!(folder.names(), ["index.gannet"]);
    assert!(fs::read(&path).unwrap() == file);
}

#[test]
fn a_context_bounds_what_is_opened() {
    let file = saved(&built(&units(1, 300), 3));
    let context = Context::new(&ContextParams::new().threads_max(1)).unwrap();
    let opened = Index::open_memory(&file, &OpenParams::new().context(&context)).unwrap();
    drop(context);
    assert!(saved(&opened) == file);
}

#[test]
fn many_threads_save_and_open_one_path_while_others_search() {
    let folder = Folder::new("threads");
    let path = folder.file("shared.gannet");
    let indexes = [1, 2].map(|seed| Arc::new(built(&units(seed, 400 * 8), 8)));
    let files = indexes.each_ref().map(|index| saved(index));
    indexes[0].save(&path, &SaveParams::new()).unwrap();
    let queries = units(3, 5 * 8);
    let queries = Matrix::new(&queries, 8).unwrap();
    let wanted = indexes
        .each_ref()
        .map(|index| index.search(queries, 5, &SearchParams::new()).unwrap().ids().to_vec());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for (index, wanted) in indexes.iter().zip(&wanted) {
                        let found = index.search(queries, 5, &SearchParams::new()).unwrap();
                        assert_eq!(found.ids(), wanted);
                    }
                }
            });
        }
        let savers: Vec<_> = (0..6)
            .map(|number| {
                let (indexes, files, wanted, path) = (&indexes, &files, &wanted, &path);
                scope.spawn(move || {
                    for round in 0..20 {
                        let params = SaveParams::new().sync(false).threads(1);
                        indexes[(number + round) % 2].save(path, &params).unwrap();
                        // SAFETY: a save makes a new file and leaves the mapped one alone.
                        let opened = match round % 3 {
                            0 => Index::open(path, &OpenParams::new()),
                            1 => unsafe { Index::open_lazy(path, &OpenParams::new()) },
                            _ => unsafe { Index::open_trusted(path, &OpenParams::new()) },
                        }
                        .unwrap();
                        let found = opened.search(queries, 5, &SearchParams::new()).unwrap();
                        assert!(wanted.iter().any(|wanted| wanted == found.ids()));
                        assert!(files.contains(&saved(&opened)));
                    }
                })
            })
            .collect();
        for saver in savers {
            saver.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    verify(&path, &default_open()).unwrap();
    assert_eq!(folder.names(), ["shared.gannet"]);
}

#[test]
fn file_types_may_be_sent_and_shared() {
    fn both<T: Send + Sync>() {}
    both::<SaveParams<'static>>();
    both::<OpenParams<'static>>();
    both::<FileInfo>();
    both::<Error>();
}
