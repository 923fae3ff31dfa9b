//! What nodes said of themselves: how much memory a type really has under a class's images.

use super::view::images;
use crate::classes::images::choose;
use crate::memory::Memory;
use kerf_api::Ec2NodeClass;
use kerf_model::{InstanceType, Quantity, Text, UnixMillis};
use std::time::Duration;

/// Hypervisors change slowly; a figure that nobody has confirmed for so long may be of another one.
const REMEMBERED_FOR: Duration = Duration::from_secs(60 * 24 * 3600);

/// By type and set of images.
pub(super) struct Learned(Memory<(Text, Text), Quantity>);

impl Learned {
    pub(super) fn new() -> Self {
        Self(Memory::new(REMEMBERED_FOR))
    }

    pub(super) fn memory(&self, instance_type: &Text, images: &Text, now: UnixMillis) -> Option<Quantity> {
        self.0.get(&(instance_type.clone(), images.clone()), now)
    }

    /// Keeps the least that any node had: a pod that is planned for must fit on all of them. Answers whether that is news.
    pub(super) fn learn(
        &self,
        class: &Ec2NodeClass,
        it: &InstanceType,
        image_id: &str,
        memory: Quantity,
        now: UnixMillis,
    ) -> bool {
        let amis = class.status.as_ref().map(|status| status.amis.as_slice()).unwrap_or_default();
        // A node of an older image says nothing about the next one.
        if memory <= Quantity::ZERO || choose(amis, it).is_none_or(|ami| ami.id != image_id) {
            return false;
        }
        let key = (it.name.0.clone(), images(class));
        let known = self.0.get(&key, now);
        if known.is_some_and(|known| memory > known) {
            return false;
        }
        self.0.put(key, memory, now);
        known != Some(memory)
    }
}
