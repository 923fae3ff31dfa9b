//! The playground's clock, as the shell and the simulated cloud ask for it.

use kerf_cloud_sim::Wait;
use kerf_control_plane::clock::Clock;
use kerf_model::UnixMillis;
use std::time::Duration;

pub(crate) struct PlaneClock(pub(crate) Clock);

impl PlaneClock {
    fn millis(&self) -> UnixMillis {
        UnixMillis(self.0.now().as_millisecond())
    }
}

impl kerf_controllers::shell::Clock for PlaneClock {
    fn now(&self) -> UnixMillis {
        self.millis()
    }

    fn wait_until(&self, then: UnixMillis) -> Duration {
        let span = u64::try_from(then.0.saturating_sub(self.millis().0)).unwrap_or(0);
        self.0.in_real_time(Duration::from_millis(span))
    }
}

impl kerf_cloud_sim::Clock for PlaneClock {
    fn now(&self) -> UnixMillis {
        self.millis()
    }

    fn sleep(&self, span: Duration) -> Wait {
        Box::pin(tokio::time::sleep(self.0.in_real_time(span)))
    }
}
