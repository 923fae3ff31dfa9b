//! The services beside EC2.

use crate::recorder::{Recorder, decoded};
use kerf_cloud_aws::wire::*;
use kerf_model::Money;
use serde_json::{Value, json};

fn body(recorder: &Recorder) -> Value {
    serde_json::from_str(&recorder.sent().last().unwrap().body).unwrap()
}

fn price_row(name: &str, amount: &str) -> String {
    let rate = json!({"pricePerUnit": {"USD": amount}});
    let terms = json!({"OnDemand": {"t": {"priceDimensions": {"r": rate}}}});
    json!({"product": {"attributes": {"instanceType": name}}, "terms": terms}).to_string()
}

#[test]
fn prices_are_asked_where_they_are_served_with_all_terms_and_by_the_hundred() {
    let answer = |token: Option<&str>, rows: &[String]| json!({"PriceList": rows, "NextToken": token}).to_string();
    let first = answer(Some("more"), &[price_row("m5.large", "0.0960000000")]);
    let second = answer(None, &[price_row("c5.large", "0.0850000000"), price_row("free.large", "0.0000000000")]);
    let recorder = Recorder::new(&[(200, &first), (200, &second)]);
    let prices = recorder.call(|sdk| sdk.get_products(PriceQuery::BareMetal)).unwrap();
    let price =
        |name: &str, micros: i64| ListPrice { instance_type: name.to_owned(), price: Money::from_micros(micros) };
    assert_eq!(prices, [price("m5.large", 96_000), price("c5.large", 85_000)]);
    let term = |field: &str, value: &str| json!({"Type": "TERM_MATCH", "Field": field, "Value": value});
    let filters = [
        term("regionCode", "us-west-2"),
        term("serviceCode", "AmazonEC2"),
        term("preInstalledSw", "NA"),
        term("operatingSystem", "Linux"),
        term("capacitystatus", "Used"),
        term("marketoption", "OnDemand"),
        term("tenancy", "Dedicated"),
        term("productFamily", "Compute Instance (bare metal)"),
    ];
    let expected = json!({"ServiceCode": "AmazonEC2", "Filters": filters, "MaxResults": 100, "NextToken": "more"});
    assert_eq!(body(&recorder), expected);
    let sent = recorder.sent().pop().unwrap();
    assert_eq!(sent.target, "AWSPriceListService.GetProducts");
    assert!(sent.uri.contains("us-east-1"), "{}", sent.uri);
}

#[test]
fn messages_are_received_by_ten_with_a_long_wait_and_deleted_by_ten() {
    let message = json!({
        "MessageId": "m-1",
        "ReceiptHandle": "r-1",
        "Body": "{}",
        "Attributes": {"SentTimestamp": "1767323045000"},
    });
    let recorder = Recorder::new(&[(200, &json!({"Messages": [message]}).to_string())]);
    let url = "https://sqs.us-west-2.amazonaws.com/1/demo".to_owned();
    let found = recorder.call(|sdk| sdk.receive_messages(url.clone())).unwrap();
    assert_eq!(
        body(&recorder),
        json!({
            "QueueUrl": url,
            "MaxNumberOfMessages": 10,
            "VisibilityTimeout": 20,
            "WaitTimeSeconds": 20,
            "MessageSystemAttributeNames": ["SentTimestamp"],
            "MessageAttributeNames": ["All"],
        })
    );
    assert_eq!((found[0].receipt.as_str(), found[0].sent_ms), ("r-1", 1_767_323_045_000));
    let recorder = Recorder::new(&[(200, r#"{"Successful": [], "Failed": []}"#)]);
    let receipts: Vec<String> = (0..12).map(|idx| format!("r-{idx}")).collect();
    recorder.call(|sdk| sdk.delete_messages(url.clone(), receipts)).unwrap();
    assert_eq!(recorder.sent().len(), 2);
    let entries = json!([{"Id": "0", "ReceiptHandle": "r-10"}, {"Id": "1", "ReceiptHandle": "r-11"}]);
    assert_eq!(body(&recorder), json!({"QueueUrl": url, "Entries": entries}));
}

#[test]
fn a_message_that_was_not_deleted_is_a_failure() {
    let failed = json!([{"Id": "0", "SenderFault": true, "Code": "ReceiptHandleIsInvalid", "Message": "stale"}]);
    let recorder = Recorder::new(&[(200, &json!({"Successful": [], "Failed": failed}).to_string())]);
    let failure =
        recorder.call(|sdk| sdk.delete_messages("https://q/1/demo".to_owned(), vec!["r".to_owned()])).unwrap_err();
    assert_eq!((failure.action, failure.code.as_str()), ("sqs:DeleteMessage", "ReceiptHandleIsInvalid"));
}

#[test]
fn profiles_of_another_path_are_left_out_even_if_the_server_sends_them() {
    let profile = |name: &str, path: &str| {
        format!(
            "<member><InstanceProfileName>{name}</InstanceProfileName><Path>{path}</Path><Roles/><Arn>arn</Arn>\
             <InstanceProfileId>id</InstanceProfileId><CreateDate>2026-01-02T03:04:05Z</CreateDate></member>"
        )
    };
    let answer = format!(
        "<ListInstanceProfilesResponse><ListInstanceProfilesResult><InstanceProfiles>{}{}</InstanceProfiles>\
         <IsTruncated>false</IsTruncated></ListInstanceProfilesResult></ListInstanceProfilesResponse>",
        profile("ours", "/karpenter/us-west-2/demo/uid/"),
        profile("foreign", "/")
    );
    let recorder = Recorder::new(&[(200, &answer)]);
    let found = recorder.call(|sdk| sdk.list_instance_profiles("/karpenter/us-west-2/demo/".to_owned())).unwrap();
    assert_eq!(found.iter().map(|profile| profile.name.as_str()).collect::<Vec<_>>(), ["ours"]);
    assert!(recorder.form().contains("PathPrefix=/karpenter/us-west-2/demo/"));
}

#[test]
fn a_profile_is_made_with_its_path_and_tags() {
    let recorder = Recorder::new(&[(
        200,
        "<CreateInstanceProfileResponse><CreateInstanceProfileResult><InstanceProfile><InstanceProfileName>p</InstanceProfileName>\
         <Path>/k/</Path><Roles/><Arn>arn</Arn><InstanceProfileId>id</InstanceProfileId><CreateDate>2026-01-02T03:04:05Z</CreateDate>\
         </InstanceProfile></CreateInstanceProfileResult></CreateInstanceProfileResponse>",
    )]);
    let tags = Tags::from([("a".to_owned(), "b".to_owned())]);
    let order = ProfileOrder { name: "p".to_owned(), path: "/k/".to_owned(), tags };
    recorder.call(|sdk| sdk.create_instance_profile(order)).unwrap();
    crate::recorder::assert_form(
        &recorder,
        "Action=CreateInstanceProfile
         Version=2010-05-08
         InstanceProfileName=p
         Path=/k/
         Tags.member.1.Key=a
         Tags.member.1.Value=b",
    );
}

#[test]
fn a_zonal_shift_is_asked_of_the_cluster_by_its_arn() {
    let arn = "arn:aws:eks:us-west-2:1:cluster/demo";
    let shift = json!({
        "appliedStatus": "APPLIED",
        "awayFrom": "usw2-az1",
        "comment": "drill",
        "expiryTime": 1_767_323_045,
        "resourceIdentifier": arn,
        "startTime": 1_767_320_000,
        "zonalShiftId": "z",
    });
    let recorder = Recorder::new(&[(200, &json!({"appliedWeights": {}, "zonalShifts": [shift]}).to_string())]);
    let found = recorder.call(|sdk| sdk.get_managed_resource(arn.to_owned())).unwrap();
    let expected =
        ZonalShift { zone_id: "usw2-az1".to_owned(), status: "APPLIED".to_owned(), expires_ms: 1_767_323_045_000 };
    assert_eq!(found, [expected]);
    let uri = decoded(&recorder.sent().pop().unwrap().uri);
    assert!(uri.ends_with("/managedresources/arn:aws:eks:us-west-2:1:cluster/demo"), "{uri}");
}

#[test]
fn a_lifecycle_action_goes_on() {
    let recorder = Recorder::new(&[(
        200,
        "<CompleteLifecycleActionResponse><CompleteLifecycleActionResult/></CompleteLifecycleActionResponse>",
    )]);
    let action = LifecycleAction {
        group: "asg".to_owned(),
        hook: "hook".to_owned(),
        token: "token".to_owned(),
        instance_id: "i-1".to_owned(),
    };
    recorder.call(|sdk| sdk.complete_lifecycle_action(action)).unwrap();
    crate::recorder::assert_form(
        &recorder,
        "Action=CompleteLifecycleAction
         Version=2011-01-01
         AutoScalingGroupName=asg
         LifecycleHookName=hook
         LifecycleActionToken=token
         LifecycleActionResult=CONTINUE
         InstanceId=i-1",
    );
}

#[test]
fn every_request_names_us_as_an_existing_installation_does() {
    let recorder = Recorder::new(&[(
        200,
        "<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>arn:aws:iam::1:user/x</Arn><Account>1</Account>\
         </GetCallerIdentityResult></GetCallerIdentityResponse>",
    )]);
    let identity = recorder.call(|sdk| sdk.get_caller_identity()).unwrap();
    assert_eq!((identity.account.as_str(), identity.arn.as_str()), ("1", "arn:aws:iam::1:user/x"));
    let sent = recorder.sent().pop().unwrap();
    assert!(sent.agent.contains("karpenter.sh-1.2.3"), "{}", sent.agent);
}
