//! A storage of which some paths are not opened, by a reason of who runs the target: its process
//! has given up the right, and the system's error would not say what to do.

use std::path::Path;
use std::sync::Arc;

use ebof_backend::{BackingId, Device, Name, OpenError, Source, Spec};

use crate::environment::Storage;

/// Why a path may not be opened, and what to do; `None` if it may. What the second argument is true
/// of is only read.
pub type Fence = Arc<dyn Fn(&Path, bool) -> Option<String> + Send + Sync>;

/// Such a storage.
pub(super) struct Fenced {
    inner: Arc<dyn Storage>,
    refuses: Fence,
}

impl Fenced {
    pub(super) fn new(inner: Arc<dyn Storage>, refuses: Fence) -> Self {
        Self { inner, refuses }
    }
}

impl Storage for Fenced {
    fn open(&self, spec: &Spec) -> Result<Arc<dyn Device>, OpenError> {
        if let Source::Path { path, .. } = &spec.source
            && let Some(reason) = (self.refuses)(path, spec.read_only)
        {
            return Err(OpenError::Refused {
                name: Name::from(path.as_path()),
                is_in_use: false,
                source: reason.into(),
            });
        }
        self.inner.open(spec)
    }

    fn id(&self, spec: &Spec) -> Option<BackingId> {
        self.inner.id(spec)
    }

    fn is_missing(&self, path: &Path) -> bool {
        self.inner.is_missing(path)
    }

    fn remove(&self, path: &Path) {
        self.inner.remove(path);
    }
}

#[cfg(test)]
mod tests {
    use ebof_backend::Kinds;

    use super::*;

    #[test]
    fn what_is_fenced_off_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), [0; 4096]).unwrap();
        let refuses: Fence =
            Arc::new(|path, read_only| (path.ends_with("a") && !read_only).then(|| "it was given up".to_owned()));
        let storage = Fenced::new(Arc::new(Kinds::system()), refuses);
        let open = |text: String| storage.open(&text.parse().unwrap()).map(drop).map_err(|error| error.to_string());
        let path = folder.path().join("a").display().to_string();
        let error = open(path.clone()).unwrap_err();
        assert!(error.contains(&path) && error.ends_with("it was given up"), "{error}");
        open(format!("{path},readonly")).unwrap();
        open("mem:1Mi".to_owned()).unwrap();
    }
}
