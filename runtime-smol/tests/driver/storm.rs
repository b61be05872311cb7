//! Many short connections whose slots are used again and again.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use relay_core::machine::ConnId;
use relay_smol::Options;

use crate::machine::{Heard, Puppet};
use crate::peers::{Client, LONG, start};

const THREADS: usize = 4;
const ROUNDS: usize = 300;

/// Each client leaves in another way, many of them with answers on the way that must not reach who comes next.
fn visit(address: std::net::SocketAddr, number: usize) {
    let mut client = Client::tcp(address);
    match number % 6 {
        0 => {}
        1 => client.say(&format!("say {number}\n").repeat(50)),
        2 => {
            client.say(&format!("keep {number}\n"));
            rustix::net::sockopt::set_socket_linger(&client.stream, Some(Duration::ZERO)).unwrap();
        }
        3 => {
            client.say(&format!("say {number}\nabort\n"));
        }
        4 => {
            client.say(&format!("say {number}\nflush\n"));
            assert_eq!(client.rest(), format!("{number}\n"));
        }
        _ => {
            client.say(&format!("keep {number}\n").repeat(20));
            client.stream.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(client.rest(), format!("{number}\n").repeat(20) + "end\n");
        }
    }
}

#[test]
fn no_byte_reaches_a_connection_that_has_the_slot_of_another() {
    let running = start(Puppet::default(), Options { events: 1 << 20, ..Options::default() });
    let address = running.address;
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || (0..ROUNDS).for_each(|round| visit(address, thread + round * THREADS)));
        }
    });
    let mut open = BTreeSet::<ConnId>::new();
    let mut slots = BTreeSet::new();
    let (mut opened, mut closed) = (0, 0);
    while closed < THREADS * ROUNDS {
        let event = running.events.recv_timeout(LONG).expect("every connection ends");
        if let Heard::Opened(conn, ..) = event {
            assert!(open.insert(conn), "{conn:?} was given out before");
            slots.insert(conn.slot());
            opened += 1;
        } else if let Heard::Closed(conn, ..) = event {
            assert!(open.remove(&conn), "{conn:?} ended before");
            closed += 1;
        }
    }
    assert_eq!((opened, open.len()), (THREADS * ROUNDS, 0));
    assert!(slots.len() < opened / 2, "slots are used again");
    assert_eq!(running.events.dropped(), 0);
    assert!(running.stop());
}
