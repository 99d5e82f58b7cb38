//! Attempts at logging in, at times of the test's choice.

use super::*;

const USER: Subject = Subject::Account(AccountId(1));

fn address(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn settings() -> AccessSettings {
    AccessSettings {
        lockout_threshold: 5,
        lockout_duration_s: 100,
        lockout_reset_after_s: 50,
        ..AccessSettings::default()
    }
}

fn fail(throttle: &mut Throttle, from: u8, now: Instant) {
    throttle.failed(address(from), USER, &settings(), now);
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn an_address_waits_longer_after_each_failure() {
    let (mut throttle, mut now) = (Throttle::default(), Instant::now());
    let settings = AccessSettings { lockout_threshold: 0, ..settings() };
    let mut delays = Vec::new();
    for _ in 0..12 {
        assert_eq!(throttle.admit(address(1), USER, now), Ok(()));
        let delay = throttle.failed(address(1), USER, &settings, now).unwrap_or_default();
        if !delay.is_zero() {
            assert_eq!(throttle.admit(address(1), USER, now), Err(Wait::Address(delay)));
            let early = now + delay - Duration::from_nanos(1);
            assert_eq!(throttle.admit(address(1), USER, early), Err(Wait::Address(Duration::from_nanos(1))));
        }
        assert_eq!(throttle.admit(address(2), USER, now), Ok(()), "others do not wait");
        delays.push(delay.as_secs());
        now += delay;
    }
    assert_eq!(delays, [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60]);
    now += FORGET;
    assert_eq!(throttle.failed(address(1), USER, &settings, now), None, "forgotten");
}

#[test]
fn an_account_is_locked_by_failures_from_anywhere_and_unlocked_by_time() {
    let (mut throttle, now) = (Throttle::default(), Instant::now());
    for from in 1..=4 {
        throttle.failed(address(from), USER, &settings(), now);
        assert_eq!(throttle.admit(address(9), USER, now), Ok(()));
    }
    throttle.failed(address(5), USER, &settings(), now + seconds(49));
    let locked = now + seconds(49);
    assert!(throttle.is_locked(AccountId(1), locked));
    assert_eq!(throttle.admit(address(9), USER, locked), Err(Wait::Account(seconds(100))));
    assert_eq!(throttle.admit(address(9), Subject::Account(AccountId(2)), locked), Ok(()));
    assert_eq!(throttle.admit(address(9), USER, locked + seconds(100)), Ok(()));
    throttle.failed(address(9), USER, &settings(), locked + seconds(100));
    assert!(!throttle.is_locked(AccountId(1), locked + seconds(100)), "it counts from the beginning");
    (6..=9).for_each(|from| fail(&mut throttle, from, locked + seconds(101)));
    assert!(throttle.is_locked(AccountId(1), locked + seconds(101)));
    throttle.unlock(AccountId(1));
    assert!(!throttle.is_locked(AccountId(1), locked + seconds(101)));
}

#[test]
fn old_failures_do_not_lock() {
    let (mut throttle, mut now) = (Throttle::default(), Instant::now());
    for _ in 0..20 {
        throttle.failed(address(1), USER, &settings(), now);
        now += seconds(50);
        assert!(!throttle.is_locked(AccountId(1), now));
    }
    let never = AccessSettings { lockout_threshold: 0, ..settings() };
    for _ in 0..200 {
        throttle.failed(address(1), USER, &never, now);
    }
    assert!(!throttle.is_locked(AccountId(1), now));
}

#[test]
fn the_user_of_a_locked_account_comes_in_from_a_known_network() {
    let (mut throttle, now) = (Throttle::default(), Instant::now());
    throttle.succeeded(address(1), USER);
    for from in 10..30 {
        throttle.failed(address(from), USER, &settings(), now);
    }
    assert_eq!(throttle.admit(address(2), USER, now), Err(Wait::Account(seconds(100))));
    assert_eq!(throttle.admit(address(1), USER, now), Ok(()));
    // But it waits for its own mistakes like all others.
    (0..=FREE).for_each(|_| fail(&mut throttle, 1, now));
    assert_eq!(throttle.admit(address(1), USER, now), Err(Wait::Address(seconds(1))));
    (40..48).for_each(|from| throttle.succeeded(address(from), USER));
    assert_eq!(throttle.admit(address(1), USER, now + seconds(10)), Err(Wait::Account(seconds(90))), "no more known");
    throttle.forget(AccountId(1));
    assert_eq!(throttle.admit(address(2), USER, now), Ok(()));
}

#[test]
fn a_name_without_account_is_locked_as_one_with_account_is() {
    let (mut throttle, now) = (Throttle::default(), Instant::now());
    let nobody = throttle.subject("nobody", None);
    assert_eq!(throttle.subject("admin", Some(AccountId(1))), USER);
    for from in 1..=5 {
        assert_eq!(throttle.admit(address(from), nobody, now), Ok(()));
        throttle.failed(address(from), nobody, &settings(), now);
    }
    assert_eq!(throttle.admit(address(9), nobody, now), Err(Wait::Account(seconds(100))));
}

#[test]
fn an_own_account_does_not_make_guessing_faster() {
    let (mut throttle, now) = (Throttle::default(), Instant::now());
    let settings = AccessSettings { lockout_threshold: 0, ..settings() };
    let own = Subject::Account(AccountId(2));
    for _ in 0..=FREE {
        throttle.failed(address(1), USER, &settings, now);
        throttle.succeeded(address(1), own);
    }
    assert_eq!(throttle.admit(address(1), USER, now), Err(Wait::Address(seconds(1))));
    let (mut throttle, other) = (Throttle::default(), address(2));
    for _ in 0..FREE {
        throttle.failed(other, own, &settings, now);
    }
    throttle.succeeded(other, own);
    assert_eq!(throttle.failed(other, own, &settings, now), None, "one's own mistakes are forgotten");
}

#[test]
fn memory_is_bounded_whoever_fails() {
    let (mut throttle, now) = (Throttle::default(), Instant::now());
    for number in 0..20_000_u32 {
        let client = IpAddr::from(number.to_be_bytes());
        let subject = throttle.subject(&format!("user{number}"), None);
        throttle.failed(client, subject, &settings(), now + Duration::from_millis(number.into()));
    }
    assert_eq!(throttle.addresses.len(), ADDRESSES_MAX);
    assert!(throttle.subjects.len() <= usize::try_from(STRANGERS).unwrap());
    let newest = Subnet::from_address(IpAddr::from(19_999_u32.to_be_bytes()));
    let oldest = Subnet::from_address(IpAddr::from(0_u32.to_be_bytes()));
    assert!(throttle.addresses.contains_key(&newest) && !throttle.addresses.contains_key(&oldest));
}

#[test]
fn a_host_has_all_addresses_of_its_network() {
    let network = |text: &str| Subnet::from_address(text.parse().unwrap());
    assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1:2"));
    assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
    assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
    assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
    assert_eq!(network("127.0.0.2"), network("::1"));
}
