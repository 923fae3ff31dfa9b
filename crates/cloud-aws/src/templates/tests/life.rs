//! How templates come and go.

use super::*;

struct Stage {
    wire: Scripted,
    clock: HandClock,
    templates: Templates,
    launch: Launch,
}

impl Stage {
    fn new() -> Self {
        let launch = Launch { types: types()[..1].to_vec(), capacity_type: CapacityType::Spot, ..Launch::new() };
        let clock = HandClock::default();
        let templates = Templates::new(Arc::new(launch.settings.clone()), Arc::new(clock.clone()));
        Self { wire: Scripted::default(), clock, templates, launch }
    }

    fn ensure(&self) -> Result<Vec<ReadyTemplate>, CloudError> {
        now(self.templates.ensure_all(&self.wire, &self.launch.wants()))
    }

    fn sweep(&self) -> Result<usize, Failure> {
        now(self.templates.sweep(&self.wire))
    }

    fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// How often each call was made: describe, create, delete.
    fn calls(&self) -> (usize, usize, usize) {
        let count = |action| self.wire.count(action);
        (count("ec2:DescribeLaunchTemplates"), count("ec2:CreateLaunchTemplate"), count("ec2:DeleteLaunchTemplate"))
    }

    fn n_left(&self) -> usize {
        self.wire.account().templates.len()
    }
}

#[test]
fn a_template_is_looked_up_and_made_once() {
    let stage = Stage::new();
    let first = stage.ensure().unwrap();
    assert_eq!((stage.ensure().unwrap(), stage.calls()), (first, (1, 1, 0)));
}

#[test]
fn who_makes_templates_waits_for_who_is_at_it() {
    let stage = Stage::new();
    let wants = stage.launch.wants();
    let mut second = Box::pin(stage.templates.ensure_all(&stage.wire, &wants));
    let mut look = || second.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let first = now(stage.templates.turn.lock());
    assert!(look().is_pending());
    assert_eq!(stage.calls(), (0, 0, 0));
    drop(first);
    assert!(matches!(look(), Poll::Ready(Ok(_))));
    assert_eq!(stage.calls(), (1, 1, 0));
}

#[test]
fn a_template_that_exists_is_used_and_not_made_again() {
    let stage = Stage::new();
    let first = stage.ensure().unwrap();
    let other = Stage { wire: stage.wire.clone(), ..Stage::new() };
    assert_eq!((other.ensure().unwrap(), other.calls()), (first, (2, 1, 0)));
}

#[test]
fn a_template_lives_as_long_as_it_is_used_and_a_minute_more() {
    let stage = Stage::new();
    stage.ensure().unwrap();
    stage.advance(50);
    stage.ensure().unwrap();
    stage.advance(59);
    assert_eq!((stage.sweep(), stage.n_left()), (Ok(0), 1));
    stage.advance(1);
    assert_eq!((stage.sweep(), stage.n_left()), (Ok(1), 0));
    assert_eq!(stage.sweep(), Ok(0));
    stage.ensure().unwrap();
    assert_eq!(stage.calls(), (2, 2, 1));
}

#[test]
fn a_template_that_was_deleted_behind_our_back_is_no_fault() {
    let stage = Stage::new();
    stage.ensure().unwrap();
    stage.wire.account().templates.clear();
    stage.advance(60);
    assert_eq!(stage.sweep(), Ok(1));
}

#[test]
fn a_template_that_cannot_be_deleted_is_tried_again_and_meanwhile_used() {
    let stage = Stage::new();
    stage.ensure().unwrap();
    stage.advance(60);
    let failure = Failure::new("ec2:DeleteLaunchTemplate", "InternalError", "an internal error");
    stage.wire.fail_next(failure.clone());
    assert_eq!(stage.sweep(), Err(failure));
    stage.ensure().unwrap();
    stage.advance(60);
    assert_eq!((stage.sweep(), stage.calls()), (Ok(1), (1, 1, 2)));
}

#[test]
fn a_denied_deletion_is_not_asked_for_every_minute() {
    let stage = Stage::new();
    stage.ensure().unwrap();
    stage.wire.fail_always(Failure::new("ec2:DeleteLaunchTemplate", "UnauthorizedOperation", "not allowed"));
    stage.advance(60);
    assert!(stage.sweep().is_err());
    for _ in 0..9 {
        stage.advance(60);
        assert_eq!(stage.sweep(), Ok(0));
    }
    stage.advance(60);
    assert!(stage.sweep().is_err());
}

#[test]
fn a_forgotten_template_is_looked_up_again() {
    let stage = Stage::new();
    let name = stage.ensure().unwrap().remove(0).name;
    stage.wire.account().templates.clear();
    stage.templates.forget([name.as_str()]);
    stage.ensure().unwrap();
    assert_eq!((stage.calls(), stage.n_left()), ((2, 2, 0), 1));
}

#[test]
fn what_an_earlier_operator_left_goes_after_a_minute() {
    let earlier = Stage::new();
    earlier.ensure().unwrap();
    let tagged = |name: &str, cluster: &str| Template {
        id: name.to_owned(),
        name: name.to_owned(),
        tags: Tags::from([(CLUSTER_TAG.to_owned(), cluster.to_owned())]),
    };
    for template in [tagged("karpenter.k8s.aws/1", "other"), tagged("made-by-hand", "demo")] {
        earlier.wire.account().templates.push((template, TemplateData::default()));
    }
    let stage = Stage { wire: earlier.wire.clone(), ..Stage::new() };
    now(stage.templates.hydrate(&stage.wire)).unwrap();
    stage.advance(60);
    assert_eq!(stage.sweep(), Ok(1));
    let left: Vec<String> = stage.wire.account().templates.iter().map(|(it, _)| it.name.clone()).collect();
    assert_eq!(left, ["karpenter.k8s.aws/1", "made-by-hand"]);
}

#[test]
fn the_end_of_a_class_takes_all_its_templates_and_no_others() {
    let mut stage = Stage::new();
    stage.ensure().unwrap();
    stage.launch.tenancy = "dedicated";
    stage.ensure().unwrap();
    stage.launch.class.metadata.name = Some("others".to_owned());
    let kept = stage.ensure().unwrap();
    assert_eq!(stage.templates.user_data_bytes().into_keys().collect::<Vec<_>>(), ["others", "workers"]);
    now(stage.templates.end_class(&stage.wire, "workers")).unwrap();
    let left: Vec<String> = stage.wire.account().templates.iter().map(|(it, _)| it.name.clone()).collect();
    assert_eq!(left, [kept[0].name.clone()]);
    assert_eq!(stage.templates.user_data_bytes().into_keys().collect::<Vec<_>>(), ["others"]);
    stage.advance(60);
    assert_eq!(stage.sweep(), Ok(1), "only the other one was still known");
}

#[test]
fn the_size_of_user_data_is_known_by_class() {
    let stage = Stage::new();
    stage.ensure().unwrap();
    let encoded = stage.wire.account().templates[0].1.user_data.clone().unwrap();
    let n_bytes = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap().len();
    assert_eq!(stage.templates.user_data_bytes(), BTreeMap::from([("workers".to_owned(), n_bytes)]));
}

#[test]
fn two_makers_of_one_template_end_up_with_one() {
    let stage = Stage::new();
    let exists = Failure::new("ec2:CreateLaunchTemplate", "InvalidLaunchTemplateName.AlreadyExistsException", "in use");
    // Not there yet when looked up, there when made.
    let name = stage.launch.names().remove(0);
    stage.wire.fail_next(Failure::new(
        "ec2:DescribeLaunchTemplates",
        "InvalidLaunchTemplateName.NotFoundException",
        "not found",
    ));
    let theirs = Template { id: "lt-theirs".to_owned(), name: name.clone(), tags: Tags::new() };
    stage.wire.account().templates.push((theirs, TemplateData::default()));
    stage.wire.fail_next(exists);
    assert_eq!(stage.ensure().unwrap()[0].name, name);
    assert_eq!(stage.n_left(), 1);
}

#[test]
fn failures_say_what_to_do_next() {
    let failing = |code: &str| {
        let stage = Stage::new();
        stage.wire.fail_always(Failure::new("ec2:CreateLaunchTemplate", code, "no"));
        stage.ensure().unwrap_err()
    };
    assert!(matches!(failing("RequestLimitExceeded"), CloudError::Throttled { .. }));
    let CloudError::LaunchFailed { reason, message } = failing("UnauthorizedOperation") else { panic!("denied") };
    assert_eq!((&*reason, &*message), ("Unauthorized", "ec2:CreateLaunchTemplate: UnauthorizedOperation: no"));
    assert!(matches!(failing("InvalidParameter"), CloudError::LaunchFailed { .. }));
}

#[test]
fn user_data_that_is_no_use_is_refused_before_any_template_is_made() {
    for (user_data, reason, words) in [
        ("x".repeat(16_384), "UserDataSizeLimitExceeded", "EC2NodeClass workers: user data of "),
        ("Content-Type: multipart/mixed\n\n".to_owned(), "InvalidUserData", "EC2NodeClass workers: spec.userData "),
    ] {
        let mut stage = Stage::new();
        stage.launch.class.spec.user_data = Some(user_data);
        let Err(CloudError::LaunchFailed { reason: found, message }) = stage.ensure() else { panic!("{reason}") };
        assert_eq!(&*found, reason);
        assert!(message.starts_with(words), "{message}");
        assert_eq!(stage.calls().1, 0);
    }
    let mut stage = Stage::new();
    stage.launch.cluster.service_cidr = None;
    assert!(matches!(stage.ensure(), Err(CloudError::ClassNotReady { .. })));
}

const DENIED: &str = "You are not authorized to perform this operation. User: arn:aws:sts::1:assumed-role/c/1 is not \
    authorized to perform: ec2:CreateTags on resource: arn:aws:ec2:us-west-2:1:spot-instances-request/* because no \
    identity-based policy allows the ec2:CreateTags action";

#[test]
fn a_denied_tag_on_spot_requests_is_left_out_and_the_template_made() {
    let stage = Stage::new();
    stage.wire.fail_next(Failure::new("ec2:CreateLaunchTemplate", "UnauthorizedOperation", DENIED));
    let ready = stage.ensure().unwrap();
    assert!(stage.templates.leaves_out_spot_tags());
    let account = stage.wire.account();
    let (template, data) = &account.templates[0];
    assert_eq!(template.name, ready[0].name);
    assert!(data.tag_specifications.iter().all(|(kind, _)| kind != "spot-instances-request"));
}

#[test]
fn a_denial_that_does_not_end_without_the_tags_is_told() {
    let stage = Stage::new();
    stage.wire.fail_always(Failure::new("ec2:CreateLaunchTemplate", "UnauthorizedOperation", DENIED));
    assert!(stage.ensure().is_err());
    assert_eq!(stage.calls().1, 2);
}

#[test]
fn only_a_denial_that_names_spot_requests_gives_up_their_tags() {
    assert!(denies_spot_tags("UnauthorizedOperation", DENIED));
    assert!(!denies_spot_tags("UnauthorizedOperation", "not authorized to perform: ec2:CreateFleet"));
    assert!(!denies_spot_tags("InvalidParameter", "spot-instances-request"));
}
