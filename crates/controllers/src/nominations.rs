//! Who was promised which place, and until when the place is kept.
//!
//! A promise is a hint: kube-scheduler has the last word unless early binding is on. It protects a node from disruption while its
//! pods are on their way, and it tells why a pod need not be planned for again.

use kerf_model::{PodId, Text, UnixMillis};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub struct Nominations {
    places: BTreeMap<Text, UnixMillis>,
    pods: BTreeMap<PodId, Promise>,
    by_place: BTreeMap<Text, BTreeSet<PodId>>,
    /// Nodes and claims that the last plan filled with the virtual pods of buffers; None before the first plan.
    for_buffers: Option<BTreeSet<Text>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promise {
    /// The node, or the claim that will become one.
    pub place: Text,
    /// When a place was first found for the pod.
    pub decided: UnixMillis,
}

impl Nominations {
    /// Keeps a node, or a claim that will become one.
    pub fn nominate(&mut self, name: &Text, until: UnixMillis) {
        let kept = self.places.entry(name.clone()).or_insert(until);
        *kept = (*kept).max(until);
    }

    pub fn is_nominated(&self, name: &str, now: UnixMillis) -> bool {
        self.places.get(name).is_some_and(|until| *until > now)
    }

    /// Promises a place to a pod. Answers whether that is news.
    pub fn promise(&mut self, pod: &PodId, place: &Text, now: UnixMillis) -> bool {
        let decided = match self.pods.get(pod) {
            Some(promise) if promise.place == *place => return false,
            Some(promise) => promise.decided,
            None => now,
        };
        self.fulfilled(pod);
        self.pods.insert(pod.clone(), Promise { place: place.clone(), decided });
        self.by_place.entry(place.clone()).or_default().insert(pod.clone());
        true
    }

    pub fn promise_of(&self, pod: &PodId) -> Option<&Promise> {
        self.pods.get(pod)
    }

    /// The pods that were promised a place on a node or claim, by name.
    pub fn pods_of(&self, place: &str) -> impl Iterator<Item = &PodId> {
        self.by_place.get(place).into_iter().flatten()
    }

    /// The pod has a place, or is gone.
    pub fn fulfilled(&mut self, pod: &PodId) {
        if let Some(promise) = self.pods.remove(pod)
            && let Some(pods) = self.by_place.get_mut(&promise.place)
        {
            pods.remove(pod);
            if pods.is_empty() {
                self.by_place.remove(&promise.place);
            }
        }
    }

    /// The place will never come.
    pub fn withdraw(&mut self, place: &str) {
        self.places.remove(place);
        for pod in self.by_place.remove(place).into_iter().flatten() {
            self.pods.remove(&pod);
        }
    }

    /// The nodes and claims on which the last plan put the virtual pods of buffers: all of them.
    pub fn keep_for_buffers(&mut self, places: BTreeSet<Text>) {
        self.for_buffers = Some(places);
    }

    /// Whether buffers want this place. Before the first plan nobody knows, and any place may be wanted.
    pub fn is_for_buffer(&self, name: &str) -> bool {
        self.for_buffers.as_ref().is_none_or(|places| places.contains(name))
    }

    /// Drops what is over.
    pub fn tidy(&mut self, now: UnixMillis) {
        self.places.retain(|_, until| *until > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_kept_until_the_pod_is_there_or_the_place_is_not() {
        let mut nominations = Nominations::default();
        let (pod, other) = (PodId::new("a", "p"), PodId::new("a", "q"));
        assert!(nominations.promise(&pod, &"one".into(), UnixMillis(1)));
        assert!(!nominations.promise(&pod, &"one".into(), UnixMillis(2)));
        assert!(nominations.promise(&pod, &"two".into(), UnixMillis(3)));
        assert_eq!(nominations.promise_of(&pod), Some(&Promise { place: "two".into(), decided: UnixMillis(1) }));
        assert!(nominations.promise(&other, &"two".into(), UnixMillis(3)));
        nominations.fulfilled(&pod);
        assert_eq!(nominations.pods_of("two").collect::<Vec<_>>(), [&other]);
        nominations.withdraw("two");
        assert_eq!(nominations.promise_of(&other), None);
    }

    #[test]
    fn a_place_is_kept_until_the_latest_time_that_was_said() {
        let mut nominations = Nominations::default();
        nominations.nominate(&"one".into(), UnixMillis(20));
        nominations.nominate(&"one".into(), UnixMillis(10));
        assert!(nominations.is_nominated("one", UnixMillis(19)));
        assert!(!nominations.is_nominated("one", UnixMillis(20)));
        nominations.tidy(UnixMillis(20));
        assert!(nominations.places.is_empty());
    }

    #[test]
    fn before_the_first_plan_any_place_may_be_for_a_buffer() {
        let mut nominations = Nominations::default();
        assert!(nominations.is_for_buffer("one"));
        nominations.keep_for_buffers([Text::from("two")].into());
        assert!(!nominations.is_for_buffer("one"));
        assert!(nominations.is_for_buffer("two"));
    }
}
