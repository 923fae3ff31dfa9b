//! EC2's rule for the client token of a fleet: who repeats a request gets the answer of the first one, and nothing is bought again; who
//! uses a token for something else is refused.

use kerf_cloud::OfferingKey;
use kerf_model::{Text, UnixMillis};
use std::collections::{BTreeMap, VecDeque};

/// How long EC2 remembers a token, about.
const REMEMBERED_MS: i64 = 24 * 3_600_000;

/// What the account remembers of requests for fleets.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    asked: BTreeMap<Text, Asked>,
    by_age: VecDeque<(UnixMillis, Text)>,
}

#[derive(Debug)]
struct Asked {
    /// Everything that the request said.
    parameters: u64,
    answer: FleetAnswer,
}

/// What came of a fleet. A fleet that finds nothing is answered, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FleetAnswer {
    Launched { provider_id: Text },
    SoldOut(Vec<OfferingKey>),
}

/// What a token means for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Known {
    New,
    Answered(FleetAnswer),
    /// `IdempotentParameterMismatch`.
    Mismatch,
}

impl Tokens {
    pub(super) fn look(&mut self, token: &str, parameters: u64, now: UnixMillis) -> Known {
        while self.by_age.front().is_some_and(|(at, _)| at.0 + REMEMBERED_MS <= now.0) {
            let oldest = self.by_age.pop_front();
            oldest.map(|(_, token)| self.asked.remove(&token));
        }
        match self.asked.get(token) {
            None => Known::New,
            Some(asked) if asked.parameters == parameters => Known::Answered(asked.answer.clone()),
            Some(_) => Known::Mismatch,
        }
    }

    pub(super) fn remember(&mut self, token: Text, parameters: u64, answer: FleetAnswer, now: UnixMillis) {
        self.by_age.push_back((now, token.clone()));
        self.asked.insert(token, Asked { parameters, answer });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_request_is_answered_alike_and_another_one_is_refused() {
        let (mut tokens, bought) = (Tokens::default(), FleetAnswer::Launched { provider_id: "i-1".into() });
        assert_eq!(tokens.look("a", 1, UnixMillis(0)), Known::New);
        tokens.remember("a".into(), 1, bought.clone(), UnixMillis(0));
        assert_eq!(tokens.look("a", 1, UnixMillis(1)), Known::Answered(bought));
        assert_eq!(tokens.look("a", 2, UnixMillis(1)), Known::Mismatch);
        assert_eq!(tokens.look("b", 1, UnixMillis(1)), Known::New);
        assert_eq!(tokens.look("a", 2, UnixMillis(REMEMBERED_MS)), Known::New, "a day later nobody remembers");
    }
}
