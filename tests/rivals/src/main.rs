//! Lease claims side by side with Redis and with claudectl's authority, each on a fresh store, in turns.

mod load;
mod speech;

use std::fs::File;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use relay_core::secret::Key;
use relay_tests::peers::{ClaudectlHome, RelayHome, Runtime, Version, free_address};

use self::load::{Outcome, Plan, run};
use self::speech::{Claims, Sets, client_id};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const AUTHORITY: &str = "authority";
const PLANS: [(&str, Plan); 3] = [
    ("1 client", Plan { clients: 1, deep: 1, requests: 2000 }),
    ("50 clients", Plan { clients: 50, deep: 1, requests: 2000 }),
    ("50 clients, 16 deep", Plan { clients: 50, deep: 16, requests: 4000 }),
];
/// What claudectl does in a second is a claim or two.
const SLOW: Plan = Plan { clients: 1, deep: 1, requests: 20 };

#[derive(Clone, Copy, PartialEq, Eq)]
enum Contestant {
    Relay(Runtime),
    Redis,
    Claudectl,
}

impl Contestant {
    fn name(self) -> &'static str {
        match self {
            Self::Relay(Runtime::Mio) => "relay, mio",
            Self::Relay(Runtime::Smol) => "relay, smol",
            Self::Redis => "redis",
            Self::Claudectl => "claudectl",
        }
    }

    fn round(self, program: &Path, round: usize, plan: Plan) -> Fallible<Outcome> {
        let key = Key::from_bytes([7; 32]);
        match self {
            Self::Relay(runtime) => {
                let home = RelayHome::new(program, AUTHORITY, runtime);
                for client in 0..plan.clients {
                    home.knows(&client_id(client), &key.to_hex(), None);
                }
                // Its event lines go nowhere, since Redis tells nothing either.
                let (address, driver) = (free_address(), runtime.as_str());
                let listen = address.to_string();
                let mut serve = Command::new(program);
                serve.args(["--quiet", "serve", "--listen", &listen, "--runtime", driver]);
                serve.env("RELAY_HOME", home.path()).stdout(Stdio::null()).stderr(Stdio::null());
                let _relay = Ended(serve.spawn()?);
                wait_for(address)?;
                let claims = Claims { round, key, authority: AUTHORITY.into() };
                Ok(run(&claims, address, plan)?)
            }
            Self::Redis => {
                let redis = Redis::start()?;
                Ok(run(&Sets { round }, redis.address, plan)?)
            }
            Self::Claudectl => {
                let home = ClaudectlHome::new(Version::Current, AUTHORITY, 30).authority(AUTHORITY);
                home.knows(&client_id(0), &key.to_hex(), None);
                let _running = home.serve();
                let claims = Claims { round, key, authority: AUTHORITY.into() };
                Ok(run(&claims, home.address, plan)?)
            }
        }
    }
}

fn main() -> Fallible<()> {
    let mut args = std::env::args().skip(1);
    let program = PathBuf::from(args.next().ok_or("usage: relay-rivals PROGRAM ROUNDS")?);
    let rounds: usize = args.next().unwrap_or_default().parse().unwrap_or(3);
    let all = [Contestant::Relay(Runtime::Mio), Contestant::Relay(Runtime::Smol), Contestant::Redis];
    println!("claims a second, and p50 and p99 of the time to the answer; medians of {rounds} rounds, in turns\n");
    println!("| | claims a second | p50 | p99 | to redis | p50 to fdatasync |\n|---|---|---|---|---|---|");
    for (name, plan) in PLANS {
        let mut syncs = Vec::new();
        let mut found: Vec<Vec<Outcome>> = all.iter().map(|_| Vec::new()).collect();
        for round in 0..rounds {
            syncs.push(fdatasync()?);
            for (at, contestant) in all.iter().enumerate() {
                found[at].push(contestant.round(&program, round, plan)?);
            }
        }
        let sync = median(syncs.iter().map(Duration::as_secs_f64));
        let redis = found.last().map(|outcomes| median(outcomes.iter().map(|outcome| outcome.rate)));
        for (contestant, outcomes) in all.iter().zip(&found) {
            row(name, *contestant, outcomes, redis, sync);
        }
        println!("| {name}, bare fdatasync of 4 KiB | | {:.0} us | | | |", sync * 1e6);
    }
    if Version::Current.program().is_some() {
        let outcome = Contestant::Claudectl.round(&program, 0, SLOW)?;
        row("1 client, 20 claims", Contestant::Claudectl, &[outcome], None, fdatasync()?.as_secs_f64());
    } else {
        println!("claudectl is not installed, so it DID NOT RUN: tests/peers/install");
    }
    Ok(())
}

fn row(name: &str, contestant: Contestant, outcomes: &[Outcome], redis: Option<f64>, sync: f64) {
    let rate = median(outcomes.iter().map(|outcome| outcome.rate));
    let quantile = |part: f64| {
        median(outcomes.iter().map(|outcome| {
            let at = (outcome.times.len() as f64 * part) as usize;
            outcome.times[at.min(outcome.times.len() - 1)].as_secs_f64()
        }))
    };
    let (p50, p99) = (quantile(0.5), quantile(0.99));
    let ratio = redis.map_or(String::new(), |redis| format!("{:.2}", rate / redis));
    println!(
        "| {name}: {} | {rate:.0} | {:.0} us | {:.0} us | {ratio} | {:.2} |",
        contestant.name(),
        p50 * 1e6,
        p99 * 1e6,
        p50 / sync
    );
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The median time of making 4 KiB durable that are written over others.
fn fdatasync() -> Fallible<Duration> {
    let file = tempfile::tempfile()?;
    let page = [7; 4096];
    for at in 0..64 {
        file.write_all_at(&page, at * 4096)?;
    }
    file.sync_all()?;
    let mut times: Vec<_> = (0..200)
        .map(|at| {
            let began = Instant::now();
            file.write_all_at(&page, at % 64 * 4096)?;
            rustix::fs::fdatasync(&file)?;
            Ok(began.elapsed())
        })
        .collect::<Result<_, std::io::Error>>()?;
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

/// A process that is killed when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until somebody listens.
fn wait_for(address: SocketAddr) -> Fallible<()> {
    let until = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(address).is_err() {
        if Instant::now() > until {
            return Err(format!("nobody listens on {address}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A Redis that syncs each group before it answers, in a folder of its own.
struct Redis {
    _child: Ended,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Redis {
    fn start() -> Fallible<Self> {
        let dir = tempfile::tempdir()?;
        let address = free_address();
        let mut config = File::create(dir.path().join("redis.conf"))?;
        write!(
            config,
            "bind 127.0.0.1\nport {}\ndir {}\nappendonly yes\nappendfsync always\nsave \"\"\ndaemonize no\n",
            address.port(),
            dir.path().display()
        )?;
        let child = Command::new("redis-server")
            .arg(dir.path().join("redis.conf"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let redis = Self { _child: Ended(child), address, _dir: dir };
        wait_for(address)?;
        Ok(redis)
    }
}
