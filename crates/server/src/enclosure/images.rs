//! Firmware images that were handed over, until the target ends.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use ebof_drive::firmware::{self, Image, PRODUCT};
use ebof_manage::enclosure::{IMAGE_BYTES_MAX, IMAGES_MAX, MistakeKind, Refused, StoredImage};

const _: () = assert!(IMAGE_BYTES_MAX == firmware::IMAGE_BYTES_MAX);

/// The images, the oldest first.
#[derive(Default)]
pub(super) struct Images(Mutex<VecDeque<(StoredImage, Arc<[u8]>)>>);

impl Images {
    /// Keeps an image.
    ///
    /// # Errors
    /// It is no image for drives.
    pub(super) fn store(&self, bytes: &[u8]) -> Result<StoredImage, Refused> {
        let wrong = |message: String| {
            let advice = "want an image for ebof's drives (`ebof man ebof-firmware`): `ebof fw-image` makes one";
            Refused::because(MistakeKind::Value, message, advice)
        };
        let image = Image::decode(bytes).map_err(|error| wrong(format!("this is no firmware image: {error}")))?;
        if image.product != PRODUCT {
            return Err(wrong(format!("this is an image for {}, not for {PRODUCT}", image.product)));
        }
        let stored = StoredImage {
            id: uuid::Uuid::new_v5(&SPACE, bytes).to_string(),
            bytes: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            revision: image.revision,
            product: image.product,
        };
        let mut images = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        images.retain(|(other, _)| other.id != stored.id);
        while images.len() >= IMAGES_MAX {
            images.pop_front();
        }
        images.push_back((stored.clone(), bytes.into()));
        Ok(stored)
    }

    /// The bytes of an image.
    pub(super) fn find(&self, id: &str) -> Option<Arc<[u8]>> {
        let images = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        images.iter().find(|(image, _)| image.id == id).map(|(_, bytes)| Arc::clone(bytes))
    }
}

/// The name space of the images' UUIDs.
const SPACE: uuid::Uuid = uuid::Uuid::from_u128(0x5b1f_37c2_8f0a_5c44_9a7e_6562_6f66_0002);

#[cfg(test)]
mod tests {
    use super::*;

    fn image(revision: &str, product: &str) -> Vec<u8> {
        let image = Image { product: product.into(), revision: revision.into(), ..Image::default() };
        image.encode().unwrap()
    }

    #[test]
    fn the_same_image_has_the_same_name_and_the_oldest_goes() {
        let images = Images::default();
        let first = images.store(&image("1.0", PRODUCT)).unwrap();
        assert_eq!((first.revision.as_str(), first.bytes), ("1.0", 4096));
        assert_eq!(images.store(&image("1.0", PRODUCT)).unwrap(), first);
        for revision in 2..=IMAGES_MAX {
            images.store(&image(&format!("{revision}.0"), PRODUCT)).unwrap();
        }
        assert_eq!(images.find(&first.id).as_deref(), Some(image("1.0", PRODUCT).as_slice()));
        images.store(&image("9.9", PRODUCT)).unwrap();
        assert_eq!(images.find(&first.id), None);
    }

    #[test]
    fn what_is_no_image_for_drives_is_refused() {
        let images = Images::default();
        let other = image("1.0", "toaster");
        let mut damaged = image("1.0", PRODUCT);
        damaged[70] ^= 1;
        let large = vec![0; IMAGE_BYTES_MAX + 1];
        for (bytes, told) in [
            (other.as_slice(), "an image for toaster"),
            (damaged.as_slice(), "checksum"),
            (large.as_slice(), "64 bytes to 1 MiB"),
            (b"", "64 bytes to 1 MiB"),
        ] {
            let refused = images.store(bytes).unwrap_err().to_string();
            assert!(refused.contains(told) && refused.contains("ebof-firmware"), "{refused}");
        }
    }
}
