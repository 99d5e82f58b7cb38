//! What namespaces and drives are kept in, in ebof's own keys: one word, or a table.

use crate::diagnostic::Collector;
use crate::drive::{Drive, FileDrive};
use crate::load::read::table::Table;
use crate::load::read::tree::{Node, Value};
use crate::load::read::values::{self, as_string, mismatch};
use ebof_grammar::backing::checked_path;

/// `drive = "disk.img:10G"` or
/// `drive = { path = "disk.img", size = "10G", direct = true, read_only = false }`.
pub(super) fn read(key: &'static str, form: &'static str, node: &Node, out: &mut Collector<'_>) -> Option<Drive> {
    match &node.value {
        Value::String(text) => values::drive(text, &node.span, out),
        Value::Table(_) => {
            let mut table = Table::open("a drive", node, out)?.with(FileDrive::KEYS);
            let path_node = table.required("path", "\"disk.img\"", out);
            let mut file = FileDrive::default();
            table.take(FileDrive::KEYS, &mut file, out);
            table.finish(out);
            let path_node = path_node?;
            let path = as_string("path", path_node, out)?;
            if let Err(error) = checked_path(path) {
                out.error(path_node.span.clone(), error.to_string(), error.advice());
                return None;
            }
            Some(Drive::File(FileDrive { path: path.to_owned(), ..file }))
        }
        _ => {
            mismatch(key, node, form, out);
            None
        }
    }
}
