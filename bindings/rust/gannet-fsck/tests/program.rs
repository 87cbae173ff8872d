//! The program: what it prints and how it ends.

mod draft;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gannet-fsck-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let program = env!("CARGO_BIN_EXE_gannet-fsck");
    let Output { status, stdout, stderr } = Command::new(program).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn one_line_a_file() {
    let folder = Folder::new("lines");
    let good = draft::plain_bf16().file();
    let mut bad = good.clone();
    bad[8192] ^= 1;
    let mut newer = good.clone();
    newer[12] = 2;
    let good = folder.file("good.gannet", &good);
    let bad = folder.file("bad.gannet", &bad);
    let newer = folder.file("newer.gannet", &newer);
    let (good, bad) = (good.to_str().unwrap(), bad.to_str().unwrap());
    let newer = newer.to_str().unwrap();

    let line = format!("{good}: ok: 2 rows of 9 bf16, squared L2, no graph");
    let (status, out, errors) = run(&[good]);
    assert!(status == Some(0) && out.starts_with(&line) && errors.is_empty(), "{out}{errors}");
    let (status, out, _) = run(&["--", bad, good]);
    let damage = "damaged: section 1 (rows): the sum of chunk 0 (from byte 0) does not fit";
    assert_eq!(out.lines().next(), Some(&format!("{bad}: {damage}")[..]));
    assert!(out.lines().nth(1).unwrap().starts_with(&line), "{out}");
    assert_eq!((status, out.lines().count()), (Some(1), 2));
    let (status, out, _) = run(&[newer]);
    let text = format!("{newer}: version: version 2.0 of the format; known is 1\n");
    assert_eq!((status, out), (Some(1), text));
    let missing = folder.0.join("missing");
    let (status, out, _) = run(&[bad, missing.to_str().unwrap(), good]);
    assert_eq!((status, out.lines().count()), (Some(2), 3));
    assert!(out.lines().nth(1).unwrap().contains("missing: unreadable: "), "{out}");
    for strange in ["/dev/null", folder.0.to_str().unwrap()] {
        let (status, out, _) = run(&[strange]);
        assert!(status == Some(2) && out.contains("no ordinary file"), "{out}");
    }

    let (status, out, _) = run(&["--json", good, bad, newer]);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((status, lines.len()), (Some(1), 3));
    assert!(lines[0].contains(r#""outcome":"ok","format":"1.0","bytes":12352,"rows":2,"dim":9"#));
    assert!(lines[1].contains(r#""outcome":"damaged","place":"section 1 (rows)","what":"the sum"#));
    assert!(lines[2].contains(r#""outcome":"version","place":null,"#), "{out}");
}

#[test]
fn the_command_line() {
    let (status, out, errors) = run(&["--help"]);
    assert!(status == Some(0) && out.starts_with("usage: gannet-fsck") && errors.is_empty());
    for wrong in [&[][..], &["--json"], &["--what", "file"]] {
        let (status, out, errors) = run(wrong);
        assert!(status == Some(2) && out.is_empty() && errors.contains("usage: "), "{errors}");
    }
}
