//! Results and descriptions as records, and enums both ways.

use gannet::*;
use serde_json::{from_str, json, to_value, Value};

#[test]
fn results_and_descriptions_are_written() {
    let index = Index::new(&IndexParams::new(1).metric(Metric::Cosine)).unwrap();
    index.build(Matrix::new(&[1.0f32, 2.0, 3.0], 1).unwrap(), &BuildParams::new()).unwrap();
    let found = index.search(Matrix::one(&[1.0f32]).unwrap(), 2, &SearchParams::new()).unwrap();
    let written = to_value(&found).unwrap();
    assert_eq!(written["ids"], json!([0, 1]));
    assert_eq!(written["statuses"], json!([0]));
    assert_eq!(written["stats"]["distance_count"], json!(found.stats().distance_count));
    let info = to_value(index.info().unwrap()).unwrap();
    assert_eq!((&info["metric"], &info["element"]), (&json!("cosine"), &json!("f32")));
    assert_eq!(info["rows"], json!(3));
    assert_eq!(to_value(index.graph_stats().unwrap()).unwrap()["rows"], json!(3));
    let plan = estimate(&IndexParams::new(4), 100, ElementType::U8, &BuildParams::new()).unwrap();
    assert!(to_value(plan).unwrap()["peak_bytes"].as_u64().unwrap() > 0);
    assert_eq!(to_value(device_info(Device::Cpu).unwrap()).unwrap()["device"], json!("cpu"));
    assert_eq!(to_value(Monitor::new().unwrap().progress().unwrap()).unwrap()["step"], json!(0));
}

#[test]
fn enums_go_both_ways() {
    for metric in [Metric::L2, Metric::InnerProduct, Metric::Cosine] {
        assert_eq!(from_str::<Metric>(&to_value(metric).unwrap().to_string()).unwrap(), metric);
    }
    assert_eq!(from_str::<Procedure>("\"cagra_multi_cta\"").unwrap(), Procedure::CagraMultiCta);
    let error = from_str::<ElementType>("\"f64\"").unwrap_err().to_string();
    assert!(error.contains("f64") && error.contains("bf16"), "{error}");
    assert!(serde_json::from_value::<Metric>(Value::Null).is_err());
}
