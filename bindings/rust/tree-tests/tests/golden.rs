//! The cases that every binding runs: `tests/golden/cases.json` of the source tree. How they are
//! compared stands in `make_cases.py` beside it.

use std::fs;
use std::path::Path;

use gannet::*;
use serde_json::Value;

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn numbers<T>(rows: &Value, convert: impl Fn(f64) -> T) -> Vec<T> {
    list(rows).iter().flat_map(list).map(|x| convert(x.as_f64().expect("a number"))).collect()
}

fn run<T: Element>(case: &Value, convert: impl Fn(f64) -> T) {
    let name = &case["name"];
    let metric = match case["metric"].as_str() {
        Some("l2") => Metric::L2,
        Some("ip") => Metric::InnerProduct,
        Some("cosine") => Metric::Cosine,
        other => panic!("{name}: metric {other:?}"),
    };
    let (dim, k) = (case["dim"].as_u64().unwrap() as usize, case["k"].as_u64().unwrap() as usize);
    let (rows, queries) = (numbers(&case["rows"], &convert), numbers(&case["queries"], &convert));
    let index = Index::new(&IndexParams::new(dim).metric(metric)).unwrap();
    index.build(Matrix::new(&rows, dim).unwrap(), &BuildParams::new()).unwrap();
    let queries = Matrix::new(&queries, dim).unwrap();

    let ids: Vec<u64> = list(&case["ids"])
        .iter()
        .flat_map(list)
        .map(|id| if id.is_null() { ID_NONE } else { id.as_u64().unwrap() })
        .collect();
    let distances: Vec<f64> = list(&case["distances"])
        .iter()
        .flat_map(list)
        .map(|x| if x == "inf" { f64::INFINITY } else { x.as_f64().unwrap() })
        .collect();
    let tolerance = if metric == Metric::Cosine { 1e-6 } else { 0.0 };
    let by_procedure = SearchParams::new().procedure(Procedure::Exact);
    for found in [
        index.search_exact(queries, k, &SearchParams::new()).unwrap(),
        index.search(queries, k, &by_procedure).unwrap(),
    ] {
        assert_eq!(found.ids(), ids, "{name}");
        for (&found, &wanted) in found.distances().iter().zip(&distances) {
            let found = f64::from(found);
            let close = found == wanted || (found - wanted).abs() <= tolerance;
            assert!(close, "{name}: {found}, not {wanted}");
        }
    }
}

#[test]
fn the_shared_cases() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/golden/cases.json");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file: Value = serde_json::from_str(&text).unwrap();
    let cases = list(&file["cases"]);
    assert!(!cases.is_empty());
    for case in cases {
        match case["element"].as_str() {
            Some("f32") => run(case, |x| x as f32),
            Some("f16") => run(case, |x| F16::from_f32(x as f32)),
            Some("bf16") => run(case, |x| Bf16::from_f32(x as f32)),
            Some("i8") => run(case, |x| x as i8),
            Some("u8") => run(case, |x| x as u8),
            other => panic!("element {other:?}"),
        }
    }
}
