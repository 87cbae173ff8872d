//! Lists by ids: merging two graphs, and files of lists.

use gannet::*;

/// Three points on a line, then two: their lists of `k`, each set by itself.
fn two_sets(k: u32) -> ([f32; 3], [f32; 2], IdLists, IdLists) {
    let (a, b) = ([0.0, 1.0, 5.0], [2.0, 6.0]);
    let params = KnnParams::new(k).method(KnnMethod::Exact);
    let lists = |rows: &[f32], first_id| {
        let graph = knn_graph(Matrix::new(rows, 1).unwrap(), &params).unwrap();
        IdLists::of(graph, Metric::L2, first_id)
    };
    let (first, second) = (lists(&a, 0), lists(&b, 3));
    (a, b, first, second)
}

#[test]
fn two_graphs_become_one() {
    let (a, b, first, second) = two_sets(2);
    let (a, b) = (Matrix::new(&a, 1).unwrap(), Matrix::new(&b, 1).unwrap());
    let merged = knn_merge(a, &first, b, &second, &KnnParams::new(2)).unwrap();
    assert_eq!((merged.rows(), merged.k(), merged.first_id()), (5, 2, 0));
    assert_eq!((merged.ids(), merged.metric()), (None, Metric::L2));
    assert_eq!(merged.neighbors(), [1, 3, 0, 3, 4, 3, 1, 0, 2, 3]);
    assert_eq!(merged.distances(), [1.0, 4.0, 1.0, 1.0, 1.0, 9.0, 1.0, 4.0, 1.0, 16.0]);
}

#[test]
fn rows_have_ids_of_their_own() {
    let (a, b, first, _) = two_sets(1);
    let (a, b) = (Matrix::new(&a, 1).unwrap(), Matrix::new(&b, 1).unwrap());
    let second = IdLists::new(1, Metric::L2, 0, vec![900, 800], vec![16.0, 16.0]).unwrap();
    assert!(second.clone().with_ids(vec![1]).is_err());
    let second = second.with_ids(vec![800, 900]).unwrap();
    let merged = knn_merge(a, &first, b, &second, &KnnParams::new(1)).unwrap();
    assert_eq!(merged.ids(), Some(&[0, 1, 2, 800, 900][..]));
    assert_eq!(merged.neighbors(), [1, 0, 900, 1, 2]);
}

#[test]
fn lists_that_are_none_are_refused() {
    let (a, b, first, second) = two_sets(1);
    let (a, b) = (Matrix::new(&a, 1).unwrap(), Matrix::new(&b, 1).unwrap());
    let short = IdLists::new(1, Metric::L2, 0, vec![1], vec![1.0]).unwrap();
    let itself = IdLists::new(1, Metric::L2, 0, vec![1, 1, 0], vec![1.0, 0.0, 1.0]).unwrap();
    for bad in [short, itself] {
        let refused = knn_merge(a, &bad, b, &second, &KnnParams::new(1)).unwrap_err();
        assert_eq!(refused.status(), Status::InvalidArgument);
    }
    let refused = knn_merge(a, &first, b, &second, &KnnParams::new(0)).unwrap_err();
    assert_eq!(refused.status(), Status::InvalidArgument);
    assert!(IdLists::new(2, Metric::L2, 0, vec![1, 2, 3], vec![0.0; 3]).is_err());
    assert!(IdLists::new(1, Metric::L2, 0, vec![1, 2], vec![0.0]).is_err());
}

#[test]
fn files_give_back_what_was_saved() {
    let path = std::env::temp_dir().join(format!("gannet-lists-test-{}", std::process::id()));
    let (_, _, first, second) = two_sets(2);
    let none = IdLists::new(3, Metric::Cosine, 9, vec![], vec![]).unwrap();
    for lists in [first, second.with_ids(vec![3, 4]).unwrap(), none] {
        lists.save(&path, &SaveParams::new()).unwrap();
        assert_eq!(IdLists::open(&path).unwrap(), lists);
    }
    let mut file = std::fs::read(&path).unwrap();
    file[50] ^= 1;
    std::fs::write(&path, &file).unwrap();
    assert_eq!(IdLists::open(&path).unwrap_err().status(), Status::Corrupt);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(IdLists::open(&path).unwrap_err().status(), Status::Io);
}
