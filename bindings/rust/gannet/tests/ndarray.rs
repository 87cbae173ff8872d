//! Arrays of the `ndarray` crate as rows and queries.

use gannet::{BuildParams, Index, IndexParams, Matrix, SearchParams, Status};
use ndarray::{array, s, Array2};

#[test]
fn views_in_standard_layout_are_taken() {
    let table = array![[0.0f32, 0.0], [3.0, 4.0], [6.0, 8.0]];
    let index = Index::new(&IndexParams::new(2)).unwrap();
    index.build_borrowed(table.view().try_into().unwrap(), None, &BuildParams::new()).unwrap();
    let queries = array![[3.0f32, 3.0]];
    let queries = Matrix::try_from(queries.view()).unwrap();
    let found = index.search(queries, 2, &SearchParams::new()).unwrap();
    assert_eq!(found.ids(), [1, 0]);
}

#[test]
fn other_layouts_are_errors() {
    let table = Array2::<f32>::zeros((3, 4));
    for view in [table.t(), table.slice(s![.., 1..3]), table.slice(s![.., ..;-1])] {
        assert_eq!(Matrix::try_from(view).unwrap_err().status(), Status::InvalidArgument);
    }
    assert_eq!(Matrix::try_from(table.slice(s![1.., ..])).unwrap().rows(), 2);
    assert!(Matrix::try_from(Array2::<u8>::zeros((2, 0)).view()).is_err());
    assert_eq!(Matrix::try_from(Array2::<u8>::zeros((0, 2)).view()).unwrap().rows(), 0);
}
