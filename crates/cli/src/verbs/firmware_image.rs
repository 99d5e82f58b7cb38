//! `fw-image`: creates a firmware image for ebof's drives. Sending it is in `firmware`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use ebof_drive::firmware::{Image, Personality};

use super::Outcome;
use crate::failure::Failure;
use crate::global::Global;
use crate::output::json::Object;
use crate::output::{View, show};

/// Makes a firmware image.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FwImage {
    /// The file to write it to
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The firmware revision while the image is active, 1 to 8 characters
    #[arg(short, long, value_name = "TEXT")]
    revision: String,
    /// The personality, as JSON: {"copy": false} [default: all features]
    #[arg(short, long, value_name = "JSON", default_value = "{}", hide_default_value = true)]
    personality: String,
    /// The product: drives refuse images of other products
    #[arg(long, value_name = "TEXT", default_value = "ebof-drive")]
    product: String,
}

impl FwImage {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let bytes = self.bytes()?;
        std::fs::write(&self.file, &bytes).with_context(|| format!("writing {}", self.file.display()))?;
        show(global, &Made { image: self, bytes: bytes.len() as u64 })?;
        Ok(ExitCode::SUCCESS)
    }

    fn bytes(&self) -> anyhow::Result<Vec<u8>> {
        let wrong = |error: &dyn std::fmt::Display| {
            Failure::usage(
                format!("this makes no firmware image: {error}"),
                "`ebof man ebof-firmware` says what an image has",
            )
        };
        let personality: Personality = serde_json::from_str(&self.personality).map_err(|error| wrong(&error))?;
        let image = Image { product: self.product.clone(), revision: self.revision.clone(), personality };
        Ok(image.encode().map_err(|error| wrong(&error))?)
    }
}

struct Made {
    image: FwImage,
    bytes: u64,
}

impl View for Made {
    fn text(&self, _verbose: bool) -> String {
        let file = self.image.file.display();
        let bytes = self.bytes;
        format!("fw-image: Success, {bytes} bytes; `ebof fw-download DEVICE -f {file}` sends them\n")
    }

    fn json(&self, _verbose: bool) -> Object {
        let object = Object::document("fw-image", 1).with("file", self.image.file.display().to_string());
        let object = object.with("product", self.image.product.as_str()).with("revision", self.image.revision.as_str());
        object.with("bytes", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(revision: &str, personality: &str) -> FwImage {
        let revision = revision.to_owned();
        let personality = personality.to_owned();
        FwImage { file: PathBuf::new(), revision, personality, product: "ebof-drive".to_owned() }
    }

    #[test]
    fn an_image_has_the_given_properties() {
        let bytes = image("2.0", r#"{"copy": false, "model-suffix": "-X"}"#).bytes().unwrap();
        assert_eq!(bytes.len(), 4096);
        let made = Image::decode(&bytes).unwrap();
        assert_eq!((made.revision.as_str(), made.product.as_str()), ("2.0", "ebof-drive"));
        assert_eq!((made.personality.copy, made.personality.verify), (false, true));
        assert_eq!(made.personality.model_suffix, "-X");
    }

    #[test]
    fn invalid_properties_of_an_image_are_refused_with_a_reason() {
        for (revision, personality, reason) in [
            ("", "{}", "the revision"),
            ("123456789", "{}", "the revision"),
            ("2.0", r#"{"fly": true}"#, "unknown field `fly`"),
            ("2.0", "{", "EOF"),
            ("2.0", r#"{"model-suffix": "much too long"}"#, "the model's suffix"),
        ] {
            let error = image(revision, personality).bytes().unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
