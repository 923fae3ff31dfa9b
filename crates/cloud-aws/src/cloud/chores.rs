//! What comes round: when, and which part of the room does it.

use super::Inner;
use crate::advice::Optional;
use crate::chores::{figures, reservations};
use crate::instances::{is_ending, is_released};
use crate::settings::Settings;
use crate::wire::Failure;
use futures_util::future::{join, join_all};
use kerf_cloud::{Chore, ChoreAsk, ChoreReport, CloudError, InUse, PoolInUse, Sample};
use kerf_model::InstanceType;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

const TYPES: &str = "providers.instancetype";
const PRICES: &str = "providers.pricing";
const PARAMETERS: &str = "providers.ssm.invalidation";
const VERSION: &str = "providers.version";
const RESERVED: &str = "capacityreservation.capacitytype";
const EXPIRING: &str = "capacityreservation.expiration";
const FIGURES: &str = "cloudprovider.metrics";
const ZONAL_SHIFT: &str = "zonalshift";
const STATUS: &str = "interruption.instancestatus";
const PROFILES: &str = "instanceprofile.garbagecollection";
const TEMPLATES: &str = "launchtemplate.sweep";
const GARBAGE: &str = "instance.garbagecollection";

const USER_DATA_BYTES: &str = "karpenter_ec2nodeclasses_userdata_bytes";

/// A young instance may belong to a claim that does not say so yet.
const GROWN_UP_MS: i64 = 30_000;
/// After a start things may be in disorder; after so many looks they are not.
const EARLY_COLLECTIONS: u32 = 20;
const EARLY: Duration = Duration::from_secs(10);
const LATER: Duration = Duration::from_secs(120);
/// A feature that AWS denies is tried again after this.
const DENIED: Duration = Duration::from_secs(300);

/// What this installation needs done.
pub(super) fn list(settings: &Settings) -> Vec<Chore> {
    const MINUTE: Duration = Duration::from_secs(60);
    const HALF_A_DAY: Duration = Duration::from_secs(12 * 3_600);
    let always = [
        // Known since the start.
        (TYPES, HALF_A_DAY, false),
        (PRICES, HALF_A_DAY, true),
        (PARAMETERS, 30 * MINUTE, false),
        (VERSION, 5 * MINUTE, true),
        (FIGURES, MINUTE, false),
        (STATUS, MINUTE, true),
        (TEMPLATES, EARLY, true),
        (GARBAGE, EARLY, false),
    ];
    let reserved = [(RESERVED, MINUTE, true), (EXPIRING, MINUTE, true)];
    let mut out = always.to_vec();
    if settings.has_reserved_capacity {
        out.extend(reserved);
    }
    if settings.has_zonal_shift {
        out.push((ZONAL_SHIFT, Duration::from_secs(30), true));
    }
    if !settings.is_isolated_vpc {
        out.push((PROFILES, 30 * MINUTE, false));
    }
    let out = out.into_iter().map(|(name, every, at_start)| {
        let collects = matches!(name, GARBAGE | PROFILES);
        Chore { name, every, at_start, collects }
    });
    out.collect()
}

impl Inner {
    pub(super) async fn run_chore(&self, name: &'static str, in_use: &InUse) -> Result<ChoreReport, CloudError> {
        self.classes.know_pools(&in_use.pools);
        let wire = &*self.wire;
        let now = self.clock.now();
        let done = match name {
            TYPES => self.supply.refresh_types(wire).await.map(|()| ChoreReport::default()),
            PRICES => return self.refresh_prices().await,
            PARAMETERS => self.classes.forget_deprecated_images(wire).await.map(|_| ChoreReport::default()),
            VERSION => self.classes.refresh_version(wire).await.map(|_| ChoreReport::default()),
            RESERVED => reservations::capacity_types(wire, in_use).await,
            EXPIRING => Ok(reservations::expirations(in_use, now)),
            FIGURES => Ok(self.figures(in_use)),
            STATUS => self.checks.run(wire, in_use, now).await.inspect(|_| {
                self.optional.passed(Optional::DescribeInstanceStatus);
            }),
            PROFILES => self.classes.collect_profiles(wire, in_use).await.map(|_| ChoreReport::default()),
            TEMPLATES => self.sweep_templates().await,
            ZONAL_SHIFT => self.follow_shifts(in_use).await,
            GARBAGE => return self.collect_garbage(in_use).await,
            other => return Err(CloudError::Unsupported { what: format!("chore {other}").into() }),
        };
        done.or_else(|failure| self.without(&failure))
    }

    /// A denied call that we can do without switches its feature off, and is named once.
    fn without(&self, failure: &Failure) -> Result<ChoreReport, CloudError> {
        let feature = Optional::of(failure.action).filter(|_| failure.is_denied());
        let Some(feature) = feature else { return Err(Self::chore_failed(failure)) };
        if let (_, Some(words)) = self.optional.note(feature, failure, self.clock.now()) {
            tracing::warn!("{words}");
        }
        Ok(ChoreReport { again_after: Some(DENIED), ..ChoreReport::default() })
    }

    /// Both lists at once; one that fails or is slow does not keep the other from being refreshed.
    async fn refresh_prices(&self) -> Result<ChoreReport, CloudError> {
        let (on_demand, spot) =
            join(self.supply.refresh_on_demand(&*self.wire), self.supply.refresh_spot(&*self.wire)).await;
        let mut report = ChoreReport::default();
        for (answer, call) in [(on_demand, Optional::GetProducts), (spot, Optional::DescribeSpotPriceHistory)] {
            match answer {
                Ok(_) => self.optional.passed(call),
                Err(failure) => report = self.without(&failure)?,
            }
        }
        Ok(report)
    }

    fn figures(&self, in_use: &InUse) -> ChoreReport {
        let types_of = |pool: &PoolInUse| self.types_of(pool);
        let size_of = |name: &str| {
            let facts = self.supply.facts(name)?;
            Some(figures::Size { cores: facts.vcpus, memory_bytes: facts.memory_mib << 20 })
        };
        let mut report = figures::figures(in_use, self.settings.has_reserved_capacity, types_of, size_of);
        let sizes = self.templates.user_data_bytes().into_iter().map(|(class, n_bytes)| Sample {
            family: USER_DATA_BYTES,
            labels: vec![class.into()],
            #[expect(clippy::cast_precision_loss, reason = "user data has 16 KiB at most")]
            value: n_bytes as f64,
        });
        report.samples.extend(sizes);
        report.samples.extend(self.tally.take());
        report
    }

    fn types_of(&self, pool: &PoolInUse) -> Result<Arc<[Arc<InstanceType>]>, CloudError> {
        let class = self.class_objects().get(&pool.node_class.name).cloned();
        let class = class
            .ok_or_else(|| CloudError::NotFound { what: format!("EC2NodeClass {}", pool.node_class.name).into() })?;
        self.supply.instance_types(&class)
    }

    async fn sweep_templates(&self) -> Result<ChoreReport, Failure> {
        // What an earlier operator left is learned first, so that it goes like ours when nobody uses it.
        if !self.are_templates_known.load(Ordering::Relaxed) {
            self.templates.hydrate(&*self.wire).await?;
            self.are_templates_known.store(true, Ordering::Relaxed);
        }
        self.templates.sweep(&*self.wire).await?;
        Ok(ChoreReport::default())
    }

    async fn follow_shifts(&self, in_use: &InUse) -> Result<ChoreReport, Failure> {
        let arn = self.arn().await?;
        let (ids, report) = self.shifts.run(&*self.wire, &arn, in_use, self.clock.now()).await?;
        let names = in_use.classes.iter().flat_map(|class| zone_names(class, &ids)).collect();
        self.instances.set_shifted_zones(names);
        self.supply.set_shifted_zones(ids);
        Ok(report)
    }

    async fn arn(&self) -> Result<String, Failure> {
        let known = self.cluster_arn.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(arn) = known {
            return Ok(arn);
        }
        let arn = self.wire.describe_cluster(self.settings.cluster_name.clone()).await?.arn;
        *self.cluster_arn.lock().unwrap_or_else(PoisonError::into_inner) = Some(arn.clone());
        Ok(arn)
    }

    /// Asks for the end of instances of ours that no claim knows, and for claims to be let go whose instance a person took over by
    /// removing its tag.
    ///
    /// Assumptions: the claims were read before the instances are. A claim made in between has an instance that is younger than
    /// what is ended here, and this process knows whom it launched what for.
    async fn collect_garbage(&self, in_use: &InUse) -> Result<ChoreReport, CloudError> {
        let now_ms = self.clock.now().0;
        let listed = self.instances.list().await?;
        let held: BTreeSet<&str> =
            in_use.claims.iter().filter_map(|claim| claim.provider_id.as_deref()).map(id_of).collect();
        // A claim that has another machine does not know this one, whoever bore its name before.
        let waiting = in_use.claims.iter().filter(|claim| claim.provider_id.is_none());
        let waiting: BTreeSet<&str> = waiting.map(|claim| claim.name.as_str()).collect();
        let orphans = listed.iter().filter(|instance| {
            let is_old = now_ms - instance.launched_ms > GROWN_UP_MS;
            is_old && !held.contains(instance.id.as_str()) && !waiting.contains(&*self.instances.claim_of(instance))
        });
        let asks = orphans.map(|instance| ChoreAsk::EndMachine {
            provider_id: crate::instances::ProviderId::format(&instance.zone, &instance.id),
            // Told of again for the sake of its node.
            is_ending: is_ending(&instance.state),
        });
        let mut report = ChoreReport { asks: asks.collect(), ..ChoreReport::default() };
        report.asks.extend(self.releases(in_use, &listed.iter().map(|instance| instance.id.as_str()).collect()).await);
        let n_before = self.n_collections.fetch_add(1, Ordering::Relaxed);
        report.again_after = Some(if n_before < EARLY_COLLECTIONS { EARLY } else { LATER });
        Ok(report)
    }

    /// Claims whose instance lives and is not ours any more.
    async fn releases(&self, in_use: &InUse, listed: &BTreeSet<&str>) -> Vec<ChoreAsk> {
        let missing = in_use.claims.iter().filter(|claim| !claim.is_deleting).filter_map(|claim| {
            let provider_id = claim.provider_id.as_deref()?;
            (!listed.contains(id_of(provider_id))).then_some((claim, provider_id))
        });
        let asked = missing.map(|(claim, provider_id)| async move {
            let found = self.instances.find(provider_id).await.ok()?;
            is_released(&found).then(|| ChoreAsk::EndClaim {
                claim: claim.name.clone(),
                reason: "Released".into(),
                message: format!(
                    "instance {provider_id} has no tag {} any more: it is kept, with its node, and is managed no longer",
                    kerf_api::labels::NODE_POOL
                )
                .into(),
                by_force: false,
            })
        });
        join_all(asked).await.into_iter().flatten().collect()
    }
}

fn id_of(provider_id: &str) -> &str {
    provider_id.rsplit('/').next().unwrap_or(provider_id)
}

/// The names of zones with these ids, as the subnets of a class tell.
fn zone_names(class: &serde_json::Value, ids: &BTreeSet<String>) -> BTreeSet<String> {
    let subnets = class["status"]["subnets"].as_array().map(Vec::as_slice).unwrap_or_default();
    let named: BTreeMap<&str, &str> =
        subnets.iter().filter_map(|subnet| Some((subnet["zoneID"].as_str()?, subnet["zone"].as_str()?))).collect();
    ids.iter().filter_map(|id| named.get(id.as_str())).map(|name| (*name).to_owned()).collect()
}
