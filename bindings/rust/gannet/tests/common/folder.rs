//! A folder for the files of one test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;

/// Gone at the end of the test.
pub struct Folder(PathBuf);

impl Folder {
    /// `name` is of no other test of the same program.
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gannet-{}-{name}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The names in it.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
