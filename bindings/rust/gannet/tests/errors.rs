//! Errors are typed and say what is at fault.

mod common;

use common::{built, units};
use gannet::*;

fn matrix(data: &[f32], dim: usize) -> Matrix<'_, f32> {
    Matrix::new(data, dim).unwrap()
}

#[test]
fn a_dim_that_does_not_match() {
    let index = Index::new(&IndexParams::new(3)).unwrap();
    let error = index.build(matrix(&[0.0; 8], 4), &BuildParams::new()).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().contains("dim"), "{error}");

    let index = built(&units(1, 30), 3);
    let error = index.search(matrix(&[0.0; 8], 4), 1, &SearchParams::new()).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.to_string().starts_with("ANN_INVALID_ARGUMENT: "), "{error}");
}

#[test]
fn a_row_that_is_not_finite() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut data = vec![1.0; 12];
        data[7] = bad;
        let index = Index::new(&IndexParams::new(3)).unwrap();
        let error = index.build(matrix(&data, 3), &BuildParams::new()).unwrap_err();
        assert_eq!(error.status(), Status::NotFinite);
        assert_eq!((error.row(), error.column()), (Some(2), Some(1)));
        // The index is as empty as before, and can be built.
        data[7] = 1.0;
        index.build(matrix(&data, 3), &BuildParams::new()).unwrap();
    }
}

#[test]
fn a_query_that_is_not_finite_disturbs_no_other() {
    let index = built(&[0.0f32, 5.0], 1);
    let queries = [1.0, f32::NAN, 4.0];
    let found = index.search(matrix(&queries, 1), 1, &SearchParams::new()).unwrap();
    assert_eq!(found.ids(), [0, ID_NONE, 1]);
    assert_eq!(found.counts(), [1, 0, 1]);
    let statuses: Vec<_> = found.statuses().iter().map(|status| status.result()).collect();
    assert_eq!(statuses, [Ok(()), Err(Status::NotFinite), Ok(())]);
}

#[test]
fn k_of_zero() {
    let index = built(&[0.0f32, 5.0], 1);
    let error = index.search(matrix(&[1.0], 1), 0, &SearchParams::new()).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().contains('k'), "{error}");
    let error = knn_graph(matrix(&[1.0], 1), &KnnParams::new(0)).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
}

#[test]
fn k_beyond_all_bounds_is_an_error() {
    let index = built(&[0.0f32, 5.0], 1);
    let (query, params) = ([1.0], SearchParams::new());
    assert!(index.search(matrix(&query, 1), usize::MAX, &params).is_err());
    assert!(index.search(matrix(&query, 1), 1 << 33, &params).is_err());
}

#[test]
fn a_search_before_the_build() {
    let index = Index::new(&IndexParams::new(1)).unwrap();
    let error = index.search(matrix(&[1.0], 1), 1, &SearchParams::new()).unwrap_err();
    assert_eq!(error.status(), Status::State);
    assert_eq!(index.get::<f32>(0).unwrap_err().status(), Status::State);
    assert_eq!(index.contains(0).unwrap_err().status(), Status::State);
    assert_eq!(index.graph().unwrap_err().status(), Status::State);
    assert_eq!(index.graph_stats().unwrap_err().status(), Status::State);
    assert_eq!(index.beam(1, None).unwrap_err().status(), Status::State);
}

#[test]
fn a_build_after_the_build() {
    let index = built(&[0.0f32, 5.0], 1);
    let error = index.build(matrix(&[1.0], 1), &BuildParams::new()).unwrap_err();
    assert_eq!(error.status(), Status::State);
}

#[test]
fn an_index_without_a_graph() {
    let index = Index::new(&IndexParams::new(1)).unwrap();
    let params = BuildParams::new().graph(GraphKind::None);
    index.build(matrix(&[0.0, 5.0], 1), &params).unwrap();
    assert_eq!(index.graph().unwrap_err().status(), Status::Unsupported);
    assert_eq!(index.beam(1, None).unwrap_err().status(), Status::Unsupported);
    let found = index.search(matrix(&[4.0], 1), 1, &SearchParams::new()).unwrap();
    assert_eq!(found.ids(), [1]);
}

#[test]
fn limits() {
    for dim in [40_000, usize::MAX] {
        assert_eq!(Index::new(&IndexParams::new(dim)).unwrap_err().status(), Status::Limit);
    }
    let error = Index::new(&IndexParams::new(0)).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    let index = built(&[0.0f32, 5.0], 1);
    let params = SearchParams::new().beam(1 << 20);
    let error = index.search(matrix(&[4.0], 1), 1, &params).unwrap_err();
    assert_eq!(error.status(), Status::Limit);
    let params = SearchParams::new().recall(1.5);
    let error = index.search(matrix(&[4.0], 1), 1, &params).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
}

#[test]
fn ids_that_do_not_fit() {
    let index = Index::new(&IndexParams::new(1)).unwrap();
    let rows = matrix(&[0.0, 5.0], 1);
    for ids in [&[1][..], &[1, 2, 3], &[1, 1], &[1, ID_NONE]] {
        let error = index.build_with_ids(rows, ids, &BuildParams::new()).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument, "{ids:?}");
    }
    index.build_with_ids(rows, &[1, 2], &BuildParams::new()).unwrap();
}

#[test]
fn elements_that_do_not_match() {
    let index = built(&[0u8, 5], 1);
    let error = index.search(matrix(&[4.0], 1), 1, &SearchParams::new()).unwrap_err();
    assert!(matches!(error.status(), Status::InvalidArgument | Status::Unsupported), "{error}");
}

#[test]
fn buffers_that_do_not_fit() {
    let index = built(&[0.0f32, 5.0], 1);
    let (query, params) = ([1.0], SearchParams::new());
    let query = matrix(&query, 1);
    let (mut ids, mut distances, mut counts) = ([0; 2], [0.0; 1], [0; 2]);
    let mut statuses = [];
    for mut found in [ResultsMut::new(1, &mut ids), ResultsMut::new(3, &mut [0; 2])] {
        let error = index.search_into(query, &mut found, &params).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
    }
    let mut found = ResultsMut::new(2, &mut ids).distances(&mut distances);
    assert!(index.search_into(query, &mut found, &params).is_err());
    let mut found = ResultsMut::new(2, &mut ids).counts(&mut counts);
    assert!(index.search_into(query, &mut found, &params).is_err());
    let mut found = ResultsMut::new(2, &mut ids).statuses(&mut statuses);
    assert!(index.search_into(query, &mut found, &params).is_err());

    assert!(index.graph_into(&mut [0; 1]).is_err());
    assert!(index.get_into::<f32>(0, &mut []).is_err());
    assert!(knn_graph_into(query, &KnnParams::new(2), &mut [0; 1], None).is_err());
    let short = Some(&mut [0.0; 1][..]);
    assert!(knn_graph_into(query, &KnnParams::new(2), &mut [0; 2], short).is_err());
    let params = BuildParams::new().knn_graph(&[1, 0], 2);
    let index = Index::new(&IndexParams::new(1)).unwrap();
    assert!(index.build(matrix(&[0.0, 5.0], 1), &params).is_err());
}

#[test]
fn a_device_that_is_not_there() {
    for device in [Device::Cuda(4000), Device::Cuda(u32::MAX)] {
        let error = device_info(device).unwrap_err();
        assert!(matches!(error.status(), Status::NoDevice | Status::InvalidArgument), "{error}");
    }
}

#[test]
fn errors_are_errors() {
    fn boxed(error: Error) -> Box<dyn std::error::Error + Send + Sync> {
        Box::new(error)
    }
    let error = Index::new(&IndexParams::new(0)).unwrap_err();
    assert_eq!((error.row(), error.column()), (None, None));
    assert_eq!((error.os_error(), error.cuda_error()), (None, None));
    assert!(boxed(error).to_string().contains("dim"));
    assert_eq!(Status::Other(12345).code(), 12345);
    assert_eq!(Status::Other(12345).name(), "unknown status");
}
