//! How calls leave the network, and how long their answers are waited for.

use crate::Stage;
use kerf_cloud_aws::sdk::{Patience, Proxies, Sdk};
use kerf_cloud_aws::wire::{Aws as _, Failure, Filter, Subnet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Hands on what is sent to any host over HTTP to one server, and refuses tunnels. Keeps the first line of each request.
struct Proxy {
    address: String,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn before(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let heard = Arc::<Mutex<Vec<String>>>::default();
        let (server, lines) = (server.trim_start_matches("http://").to_owned(), heard.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that breaks off is no business of ours.
                let _ = hand_on(stream, &server, &lines);
            }
        });
        Self { address, heard }
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

fn hand_on(mut client: TcpStream, server: &str, lines: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    lines.lock().unwrap().push(first.trim().to_owned());
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if !lower.starts_with("connection:") {
            head += &line;
        }
    }
    if first.starts_with("CONNECT") {
        return client.write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut upstream = TcpStream::connect(server)?;
    write!(upstream, "POST / HTTP/1.1\r\n{head}Connection: close\r\n\r\n")?;
    upstream.write_all(&body)?;
    std::io::copy(&mut upstream, &mut client)?;
    Ok(())
}

fn ask(stage: &Stage, sdk: &Sdk) -> Result<Vec<Subnet>, Failure> {
    stage.run(sdk.describe_subnets(vec![Filter::tag("karpenter.sh/discovery", "demo")]))
}

#[test]
fn calls_go_through_the_proxy_that_is_named_for_their_scheme_unless_their_host_is_named_too() {
    let Some(stage) = Stage::start("AWS through a proxy") else { return };
    let proxy = Proxy::before(stage.account.endpoint());
    let through = |endpoint: &str, https: bool, no_proxy: &str| {
        let named = Some(proxy.address.clone());
        let proxies = Proxies {
            https: named.clone().filter(|_| https),
            http: named.filter(|_| !https),
            no_proxy: no_proxy.to_owned(),
        };
        let patience = Patience { call: Duration::from_secs(20), ..Patience::default() };
        let sdk = stage.reached(|connection| {
            connection.endpoint = Some(endpoint.to_owned());
            (connection.proxies, connection.patience) = (proxies, patience);
        });
        let before = proxy.heard().len();
        let answer = ask(&stage, &sdk);
        (answer, proxy.heard()[before..].to_vec())
    };
    let (answer, heard) = through("http://ec2.aws.invalid", false, "");
    assert_eq!(answer.unwrap().len(), 3);
    assert_eq!(heard, ["POST http://ec2.aws.invalid/ HTTP/1.1"]);
    let (answer, heard) = through("https://ec2.aws.invalid", true, "other.invalid");
    assert_eq!(answer.unwrap_err().status, 0, "this proxy refuses tunnels");
    assert!(!heard.is_empty() && heard.iter().all(|line| line == "CONNECT ec2.aws.invalid:443 HTTP/1.1"), "{heard:?}");
    for no_proxy in ["ec2.aws.invalid", ".aws.invalid", "*"] {
        let (answer, heard) = through("https://ec2.aws.invalid", true, no_proxy);
        assert_eq!((answer.unwrap_err().status, heard), (0, Vec::<String>::new()), "{no_proxy}");
    }
    // Loopback, and with it the services of an instance and a pod, go straight.
    let (answer, heard) = through(stage.account.endpoint(), false, "");
    assert_eq!((answer.unwrap().len(), heard), (3, Vec::new()));
}

#[test]
fn a_call_that_is_not_answered_ends_and_says_so() {
    let Some(stage) = Stage::start("an AWS that hangs") else { return };
    stage.account.hang("ec2:DescribeSubnets", true).unwrap();
    let patience =
        Patience { first_byte: Duration::from_millis(300), call: Duration::from_millis(1_500), ..Patience::default() };
    let sdk = stage.reached(|connection| connection.patience = patience);
    let began = Instant::now();
    let failure = ask(&stage, &sdk).unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(failure.status == 0 && failure.is_server_error() && failure.message.contains("time"), "{failure}");
    stage.account.hang("ec2:DescribeSubnets", false).unwrap();
    assert_eq!(ask(&stage, &stage.sdk).unwrap().len(), 3);
}
