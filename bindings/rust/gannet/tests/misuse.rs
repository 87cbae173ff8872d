//! A table of what goes wrong: each line is a call that no program should make, and the status that it
//! ends with. None of them may end otherwise.

mod common;

use common::{built, units};
use gannet::cuda::{DeviceBuffer, DeviceMatrix, DeviceResults, Stream};
use gannet::Status::*;
use gannet::*;

type Case = (&'static str, fn() -> Result<()>, &'static [Status]);

fn floats() -> Index<'static> {
    built(&units(1, 300), 3)
}

fn bytes() -> Index<'static> {
    built(&[1u8, 2, 3, 4, 5, 6], 3)
}

fn empty() -> Index<'static> {
    Index::new(&IndexParams::new(3)).unwrap()
}

fn rows(data: &[f32]) -> Matrix<'_, f32> {
    Matrix::new(data, 3).unwrap()
}

fn search(index: &Index<'_>, k: usize, params: &SearchParams<'_>) -> Result<()> {
    index.search(rows(&[1.0, 2.0, 3.0]), k, params).map(drop)
}

fn two_lists() -> SearchParams<'static> {
    SearchParams::new().procedure(Procedure::TwoLists)
}

const NO_GPU: Device = Device::Cuda(4000);

const CASES: &[Case] = &[
    // Shapes.
    ("dim 0", || Index::new(&IndexParams::new(0)).map(drop), &[InvalidArgument]),
    ("dim beyond the limit", || Index::new(&IndexParams::new(32_769)).map(drop), &[Limit]),
    ("dim beyond 32 bits", || Index::new(&IndexParams::new(usize::MAX)).map(drop), &[Limit]),
    ("half a row", || Matrix::new(&[1.0f32; 4], 3).map(drop), &[InvalidArgument]),
    ("rows of no column", || Matrix::<f32>::new(&[], 0).map(drop), &[InvalidArgument]),
    ("no query", || Matrix::<f32>::one(&[]).map(drop), &[InvalidArgument]),
    (
        "rows beyond the slice",
        || Matrix::strided(&[1.0f32; 8], 3, 3, 3).map(drop),
        &[InvalidArgument],
    ),
    (
        "rows over each other",
        || Matrix::strided(&[1.0f32; 9], 3, 3, 2).map(drop),
        &[InvalidArgument],
    ),
    (
        "a stride that overflows",
        || Matrix::strided(&[1.0f32; 9], 3, 3, usize::MAX / 2 + 1).map(drop),
        &[InvalidArgument],
    ),
    (
        "rows of another dim",
        || empty().build(Matrix::new(&[1.0f32; 8], 4)?, &BuildParams::new()),
        &[InvalidArgument],
    ),
    (
        "queries of another dim",
        || floats().search(Matrix::new(&[1.0f32; 8], 4)?, 1, &SearchParams::new()).map(drop),
        &[InvalidArgument],
    ),
    // Elements.
    (
        "floats asked of bytes",
        || search(&bytes(), 1, &SearchParams::new()),
        &[InvalidArgument, Unsupported],
    ),
    (
        "floats stored as bytes",
        || {
            let index = Index::new(&IndexParams::new(3).element(ElementType::U8))?;
            index.build(rows(&[1.0; 3]), &BuildParams::new())
        },
        &[Unsupported],
    ),
    ("a vector as another element", || floats().get::<u8>(0).map(drop), &[InvalidArgument]),
    ("vectors as another element", || bytes().get_batch::<f32>(&[0]).map(drop), &[InvalidArgument]),
    // Values.
    (
        "NaN in a row",
        || empty().build(rows(&[1.0, f32::NAN, 2.0]), &BuildParams::new()),
        &[NotFinite],
    ),
    ("k of 0", || search(&floats(), 0, &SearchParams::new()), &[InvalidArgument]),
    ("k beyond memory", || search(&floats(), usize::MAX, &SearchParams::new()), &[NoMemory]),
    ("k beyond 32 bits", || search(&floats(), 1 << 32, &SearchParams::new()), &[Limit, NoMemory]),
    ("recall of 2", || search(&floats(), 1, &SearchParams::new().recall(2.0)), &[InvalidArgument]),
    (
        "recall of NaN",
        || search(&floats(), 1, &SearchParams::new().recall(f32::NAN)),
        &[InvalidArgument],
    ),
    ("a beam below k", || search(&floats(), 9, &SearchParams::new().beam(2)), &[InvalidArgument]),
    ("a beam too long", || search(&floats(), 1, &SearchParams::new().beam(1 << 20)), &[Limit]),
    (
        "a degree of 1",
        || empty().build(rows(&[1.0; 9]), &BuildParams::new().degree(1)),
        &[InvalidArgument],
    ),
    (
        "a degree too high",
        || empty().build(rows(&[1.0; 9]), &BuildParams::new().degree(300)),
        &[InvalidArgument, Limit],
    ),
    // Ids.
    (
        "fewer ids than rows",
        || empty().build_with_ids(rows(&[1.0; 9]), &[1, 2], &BuildParams::new()),
        &[InvalidArgument],
    ),
    (
        "an id twice",
        || empty().build_with_ids(rows(&[1.0; 6]), &[2, 2], &BuildParams::new()),
        &[InvalidArgument],
    ),
    (
        "the id of no row",
        || empty().build_with_ids(rows(&[1.0; 3]), &[ID_NONE], &BuildParams::new()),
        &[InvalidArgument],
    ),
    (
        "vectors of an unknown id",
        || floats().get_batch::<f32>(&[0, 100]).map(drop),
        &[InvalidArgument],
    ),
    (
        "room for fewer vectors",
        || floats().get_batch_into(&[0, 1], &mut [0.0f32; 5], &mut [false; 2]),
        &[InvalidArgument],
    ),
    (
        "room for fewer answers",
        || floats().get_batch_into(&[0, 1], &mut [0.0f32; 6], &mut [false; 1]),
        &[InvalidArgument],
    ),
    ("ids beyond the last row", || floats().ids_into(99, &mut [0; 2]), &[InvalidArgument]),
    ("ids from far beyond", || floats().ids_into(usize::MAX, &mut [0; 2]), &[InvalidArgument]),
    // States.
    ("search before the build", || search(&empty(), 1, &SearchParams::new()), &[State]),
    ("ids before the build", || empty().ids_into(0, &mut []), &[State]),
    ("vectors before the build", || empty().get_batch::<f32>(&[]).map(drop), &[State]),
    ("a second build", || floats().build(rows(&[1.0; 3]), &BuildParams::new()), &[State]),
    (
        "an unbuilt index in a file",
        || empty().save_to(&mut Vec::new(), &SaveParams::new()),
        &[State],
    ),
    (
        "the graph of an index without",
        || {
            let index = empty();
            index.build(rows(&[1.0; 3]), &BuildParams::new().graph(GraphKind::None))?;
            index.graph().map(drop)
        },
        &[Unsupported],
    ),
    (
        "two lists by so many warps",
        || search(&floats(), 1, &two_lists().warps_per_query(2)),
        &[InvalidArgument],
    ),
    (
        "a deprecated name with another number of warps",
        || {
            #[allow(deprecated)]
            search(&floats(), 1, &two_lists().procedure(Procedure::Block).warps_per_query(16))
        },
        &[InvalidArgument],
    ),
    (
        "two lists on the CPU",
        || search(&floats(), 1, &two_lists().device(Device::Cpu)),
        &[Unsupported],
    ),
    // Devices.
    (
        "a search on no device",
        || search(&floats(), 1, &SearchParams::new().device(NO_GPU)),
        &[NoDevice],
    ),
    (
        "a build on no device",
        || empty().build(rows(&[1.0; 9]), &BuildParams::new().device(NO_GPU)),
        &[NoDevice],
    ),
    ("placed on the CPU", || floats().place(Device::Cpu, None), &[InvalidArgument]),
    ("placed on no device", || floats().place(NO_GPU, None), &[NoDevice]),
    ("placed before the build", || empty().place(Device::Cuda(0), None), &[State]),
    ("evicted from the CPU", || floats().evict(Device::Cpu), &[InvalidArgument]),
    ("evicted before the build", || empty().evict(Device::Cuda(0)), &[State]),
    (
        "device memory of the CPU",
        || DeviceBuffer::<f32>::zeroed(Device::Cpu, 1).map(drop),
        &[InvalidArgument],
    ),
    ("memory of no device", || DeviceBuffer::<f32>::zeroed(NO_GPU, 1).map(drop), &[NoDevice]),
    ("results of no device", || DeviceResults::new(NO_GPU, 1, 1).map(drop), &[NoDevice]),
    ("results beyond memory", || DeviceResults::new(NO_GPU, usize::MAX, 2).map(drop), &[Limit]),
    ("a stream of the CPU", || Stream::new(Device::Cpu).map(drop), &[InvalidArgument]),
    ("a stream of no device", || Stream::new(NO_GPU).map(drop), &[NoDevice]),
    (
        "host memory called device memory",
        || {
            let data = [1.0f32; 3];
            // SAFETY: not kept, but the library looks before it reads.
            let rows = unsafe { DeviceMatrix::new(Device::Cuda(0), data.as_ptr(), 1, 3, 3)? };
            empty().build_from_device(rows, None, &BuildParams::new())
        },
        &[NoDevice, InvalidArgument],
    ),
    // Files.
    ("no file", || Index::open("no/such/file", &OpenParams::new()).map(drop), &[Io]),
    ("a folder that is not there", || floats().save("no/such/file", &SaveParams::new()), &[Io]),
    ("a zero in a path", || floats().save("a\0b", &SaveParams::new()), &[InvalidArgument]),
    (
        "bytes of no file",
        || Index::open_memory(&[7; 100], &OpenParams::new()).map(drop),
        &[Corrupt],
    ),
    ("no bytes", || Index::open_memory(&[], &OpenParams::new()).map(drop), &[Corrupt]),
    // Texts.
    ("a metric of no name", || "manhattan".parse::<Metric>().map(drop), &[InvalidArgument]),
];

#[test]
fn every_misuse_ends_in_its_own_error() {
    for (what, call, wanted) in CASES {
        match call() {
            Ok(()) => panic!("{what}: no error"),
            Err(error) => {
                assert!(wanted.contains(&error.status()), "{what}: {error}");
                assert!(!error.message().is_empty(), "{what}: no text");
            }
        }
    }
}

#[test]
fn enums_have_names() {
    for metric in [Metric::L2, Metric::InnerProduct, Metric::Cosine] {
        assert_eq!(metric.to_string().parse::<Metric>().unwrap(), metric);
    }
    assert_eq!(format!("{:>6}|{:<5}|", ElementType::Bf16, Procedure::Tsdg), "  bf16|tsdg |");
    // Deprecated names are read and written.
    #[allow(deprecated)]
    let before = [("warp", Procedure::Warp), ("wide_block", Procedure::WideBlock)];
    for (text, procedure) in before {
        assert_eq!(
            (text.parse::<Procedure>().unwrap(), procedure.to_string()),
            (procedure, text.to_string())
        );
    }
    assert_eq!(
        format!("{} {} {}", GraphKind::Cagra, KnnMethod::NnDescent, Compare::Stored),
        "cagra nn_descent stored"
    );
    assert_eq!(format!("{} {}", Device::Cpu, Device::Cuda(3)), "cpu cuda:3");
}

#[test]
fn results_are_gone_through_from_both_ends() {
    let index = floats();
    let data = units(2, 12);
    let found = index.search(rows(&data), 5, &SearchParams::new()).unwrap();
    assert_eq!((found.iter().len(), found.iter().next_back().unwrap().iter().len()), (4, 5));
    let mut all = Vec::new();
    for neighbors in &found {
        for near in neighbors {
            all.push(near.id);
        }
    }
    assert_eq!(all, found.ids());
    let backwards: Vec<u64> =
        found.iter().rev().flat_map(|neighbors| neighbors.iter().rev()).map(|n| n.id).collect();
    assert!(all.iter().rev().eq(&backwards));
    let (ids, stats) = (found.ids().to_vec(), found.stats());
    let parts = found.into_parts();
    assert_eq!((parts.k, parts.ids, parts.stats), (5, ids, stats));
    assert_eq!((parts.distances.len(), parts.counts, parts.statuses.len()), (20, vec![5; 4], 4));
}

#[test]
fn ids_and_vectors_come_in_lists() {
    let (data, dim) = (units(3, 200 * 6), 6);
    let ids: Vec<u64> = (0..200).map(|row| 1_000_000 - row * row).collect();
    let index = Index::new(&IndexParams::new(dim)).unwrap();
    index.build_with_ids(Matrix::new(&data, dim).unwrap(), &ids, &BuildParams::new()).unwrap();
    assert_eq!(index.ids().unwrap(), ids);
    let mut piece = [0; 7];
    index.ids_into(190, &mut piece).unwrap();
    assert_eq!(piece, ids[190..197]);
    assert_eq!(index.get_batch::<f32>(&ids).unwrap(), data);
    let (mut vectors, mut found) = (vec![9.0; 2 * dim], [false; 2]);
    index.get_batch_into(&[3, ids[4]], &mut vectors, &mut found).unwrap();
    assert_eq!(
        (found, &vectors[..dim], &vectors[dim..]),
        ([false, true], &[9.0; 6][..], &data[24..30])
    );
    assert_eq!(index.get_batch::<f32>(&[]).unwrap(), []);
    let error = index.get_batch::<f32>(&[ids[0], 3]).unwrap_err();
    assert_eq!((error.status(), error.row()), (InvalidArgument, Some(1)));
}
