//! Accounts, logins and sessions together, as whoever serves them sees it.

use std::sync::Arc;

use super::*;

const PASSWORD: &str = "correct horse";

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

/// Stores in memory, or fails to.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<(Option<String>, Fault)>>);

#[derive(Clone, Copy, Default)]
enum Fault {
    #[default]
    None,
    Full,
    Unknown,
}

impl Keep for Memory {
    fn keep(&self, text: &str) -> Result<(), KeepError> {
        let mut memory = self.0.lock().unwrap();
        match memory.1 {
            Fault::None => {}
            Fault::Full => return Err(std::io::Error::new(std::io::ErrorKind::StorageFull, "no space left").into()),
            Fault::Unknown => return Err(KeepError::Unknown(std::io::Error::other("the medium failed"))),
        }
        memory.0 = Some(text.to_owned());
        Ok(())
    }
}

impl Memory {
    fn text(&self) -> String {
        self.0.lock().unwrap().0.clone().unwrap()
    }

    fn fails(&self, fault: Fault) {
        self.0.lock().unwrap().1 = fault;
    }
}

fn empty() -> (Access, Clock, Memory) {
    let (clock, memory) = (Clock::simulated(1), Memory::default());
    (Access::new(None, clock.clone(), Box::new(memory.clone())).unwrap(), clock, memory)
}

fn new(name: &str, role: Role) -> NewAccount {
    NewAccount {
        name: name.to_owned(),
        password: PASSWORD.to_owned(),
        role,
        reach: AccountReach::Everything,
        enabled: true,
        must_change_password: false,
    }
}

fn denied(access: &Access, name: &str, password: &str) -> DeniedFor {
    access.login(HERE, name, password).unwrap_err().reason
}

#[test]
fn the_first_administrator_has_to_choose_a_password() {
    let (access, _, memory) = empty();
    // Who is killed between the two has no account without a password.
    let refused = access.ensure_administrator("admin", |_| Err(Mistake::Busy)).unwrap_err();
    assert_eq!((refused, access.accounts().len()), (Mistake::Busy, 0));
    let mut password = String::new();
    let told = |told: &str| {
        told.clone_into(&mut password);
        Ok::<_, Mistake>(())
    };
    assert!(access.ensure_administrator("admin", told).unwrap());
    assert!(!memory.text().contains(&password));
    assert!(!access.ensure_administrator("admin", |_| Err(Mistake::Busy)).unwrap());
    let user = access.login(HERE, "admin", &password).unwrap();
    assert_eq!((user.role, user.must_change_password), (Role::Administrator, true));
    assert!(user.may(Privilege::ConfigureSelf) && !user.may(Privilege::Login) && !user.may(Privilege::ConfigureUsers));
    let (session, token) = access.open_session(&user, HERE).unwrap();
    let change = AccountChange { password: Some(PASSWORD.to_owned()), ..AccountChange::default() };
    access.change_account(user.account, &change, Some(&session.id)).unwrap();
    let user = access.by_token(token.text(), HERE).unwrap();
    assert!(user.may(Privilege::Login) && user.may(Privilege::ConfigureUsers));
    assert_eq!(denied(&access, "admin", &password), DeniedFor::WrongPassword);
}

#[test]
fn accounts_survive_a_restart_and_sessions_do_not() {
    let (access, clock, memory) = empty();
    access.add_account(&new("admin", Role::Administrator)).unwrap();
    access.add_account(&new("watch", Role::ReadOnly)).unwrap();
    access.change_settings(&SettingsChange { session_timeout_s: Some(60), ..SettingsChange::default() }).unwrap();
    let user = access.login(HERE, "watch", PASSWORD).unwrap();
    let (_, token) = access.open_session(&user, HERE).unwrap();
    let again = Access::new(Some(&memory.text()), clock, Box::new(memory.clone())).unwrap();
    assert_eq!(again.accounts(), access.accounts());
    assert_eq!(again.settings(), access.settings());
    assert_eq!(again.login(HERE, "watch", PASSWORD).unwrap(), user);
    assert_eq!(again.by_token(token.text(), HERE).unwrap_err().reason, DeniedFor::UnknownSession);
}

// @test data.stored-outcome
#[test]
fn what_is_not_stored_is_not_changed() {
    let (access, _, memory) = empty();
    let admin = access.add_account(&new("admin", Role::Administrator)).unwrap();
    let (accounts, settings) = (access.accounts(), access.settings());
    memory.fails(Fault::Full);
    let is_not_stored = |mistake: Mistake| matches!(mistake, Mistake::NotStored(_));
    assert!(is_not_stored(access.add_account(&new("more", Role::Administrator)).unwrap_err()));
    let change = AccountChange { name: Some("other".to_owned()), ..AccountChange::default() };
    assert!(is_not_stored(access.change_account(admin.id, &change, None).unwrap_err()));
    let change = SettingsChange { basic_auth: Some(false), ..SettingsChange::default() };
    assert!(is_not_stored(access.change_settings(&change).unwrap_err()));
    assert_eq!((access.accounts(), access.settings()), (accounts, settings));
    access.login(HERE, "admin", PASSWORD).unwrap();
    memory.fails(Fault::Unknown);
    let change = AccountChange { password: Some("another one".to_owned()), ..AccountChange::default() };
    let told = access.change_account(admin.id, &change, None).unwrap_err();
    assert!(matches!(told, Mistake::Unknown(_)), "{told}");
    assert!(told.to_string().starts_with("it is not known whether the change of accounts is stored"), "{told}");
    access.login(HERE, "admin", PASSWORD).unwrap();
    memory.fails(Fault::None);
    assert_eq!(access.remove_account(admin.id), Err(Mistake::LastAdministrator));
}

#[test]
fn sessions_end_with_what_they_stand_for() {
    let (access, ..) = empty();
    access.add_account(&new("admin", Role::Administrator)).unwrap();
    let id = access.add_account(&new("user", Role::Operator)).unwrap().id;
    let session = |password: &str| {
        let user = access.login(HERE, "user", password).unwrap();
        access.open_session(&user, HERE).unwrap()
    };
    let is_open = |token: &Token| access.by_token(token.text(), HERE).is_ok();
    let change = |change| access.change_account(id, &change, None).unwrap();
    let (_, token) = session(PASSWORD);
    change(AccountChange { must_change_password: Some(false), ..AccountChange::default() });
    assert!(is_open(&token));
    change(AccountChange { role: Some(Role::ReadOnly), ..AccountChange::default() });
    assert!(!is_open(&token));
    let ((_, token), (own, own_token)) = (session(PASSWORD), session(PASSWORD));
    let password = AccountChange { password: Some("another one".to_owned()), ..AccountChange::default() };
    access.change_account(id, &password, Some(&own.id)).unwrap();
    assert!(!is_open(&token) && is_open(&own_token));
    assert_eq!(denied(&access, "user", PASSWORD), DeniedFor::WrongPassword, "nor is it remembered");
    change(AccountChange { enabled: Some(false), ..AccountChange::default() });
    assert!(!is_open(&own_token));
    assert_eq!(denied(&access, "user", "another one"), DeniedFor::Disabled);
    change(AccountChange { enabled: Some(true), ..AccountChange::default() });
    let (session, token) = session("another one");
    assert_eq!(access.sessions(), std::slice::from_ref(&session));
    access.close_session(&session.id).unwrap();
    assert!(!is_open(&token));
    assert_eq!(access.close_session(&session.id), Err(Mistake::NoSuchSession));
    let user = access.login(HERE, "user", "another one").unwrap();
    let (_, token) = access.open_session(&user, HERE).unwrap();
    access.remove_account(id).unwrap();
    assert!(!is_open(&token) && access.sessions().is_empty());
    assert_eq!(access.open_session(&user, HERE).unwrap_err(), Mistake::NoSuchAccount);
}

// @test redfish.login
#[test]
fn a_login_before_a_change_of_the_password_opens_nothing_after_it() {
    let (access, ..) = empty();
    access.add_account(&new("admin", Role::Administrator)).unwrap();
    let id = access.add_account(&new("user", Role::Operator)).unwrap().id;
    let user = access.login(HERE, "user", PASSWORD).unwrap();
    assert!(access.still_holds(&user), "an answer to a request with name and password goes on");
    let password = AccountChange { password: Some("another one".to_owned()), ..AccountChange::default() };
    access.change_account(id, &password, None).unwrap();
    assert_eq!(access.open_session(&user, HERE).unwrap_err(), Mistake::NoSuchAccount);
    assert!(!access.still_holds(&user) && access.sessions().is_empty());
    let user = access.login(HERE, "user", "another one").unwrap();
    access.open_session(&user, HERE).unwrap();
}

#[test]
fn a_token_is_good_where_it_was_given_unless_that_is_set_otherwise() {
    let (access, clock, _) = empty();
    access.add_account(&new("admin", Role::Administrator)).unwrap();
    let user = access.login(HERE, "admin", PASSWORD).unwrap();
    let (_, token) = access.open_session(&user, HERE).unwrap();
    let elsewhere = IpAddr::from([192, 0, 2, 2]);
    assert_eq!(access.by_token(token.text(), elsewhere).unwrap_err().reason, DeniedFor::OtherAddress);
    access.by_token(token.text(), HERE).unwrap();
    access.change_settings(&SettingsChange { sessions_by_address: Some(false), ..SettingsChange::default() }).unwrap();
    access.by_token(token.text(), elsewhere).unwrap();
    clock.advance(Duration::from_secs(1800));
    assert_eq!(access.by_token(token.text(), HERE).unwrap_err().reason, DeniedFor::UnknownSession);
}

#[test]
fn an_answer_that_goes_on_holds_as_long_as_its_session_and_keeps_it() {
    let (access, clock, _) = empty();
    access.add_account(&new("admin", Role::Administrator)).unwrap();
    let user = access.login(HERE, "admin", PASSWORD).unwrap();
    let (session, token) = access.open_session(&user, HERE).unwrap();
    let listener = access.by_token(token.text(), HERE).unwrap();
    for _ in 0..3 {
        clock.advance(Duration::from_secs(1799));
        assert!(access.still_holds(&listener) && access.still_holds(&user));
    }
    access.close_session(&session.id).unwrap();
    assert!(!access.still_holds(&listener) && access.still_holds(&user));
    access.add_account(&new("other", Role::Administrator)).unwrap();
    let change = AccountChange { role: Some(Role::ReadOnly), ..AccountChange::default() };
    access.change_account(user.account, &change, None).unwrap();
    assert!(!access.still_holds(&user));
}

#[test]
fn guessing_is_slowed_and_then_locks_the_account() {
    let (access, clock, _) = empty();
    let id = access.add_account(&new("admin", Role::Administrator)).unwrap().id;
    let known = IpAddr::from([192, 0, 2, 77]);
    access.login(known, "admin", PASSWORD).unwrap();
    let mut tried = 0;
    let locked = loop {
        let denied = access.login(HERE, "admin", &format!("guess {tried}")).unwrap_err();
        match denied.reason {
            DeniedFor::WrongPassword => tried += 1,
            DeniedFor::Throttled => clock.advance(denied.retry_after.unwrap()),
            _ => break denied,
        }
    };
    assert_eq!((tried, locked.reason), (10, DeniedFor::Locked));
    assert!(access.account(id).unwrap().locked);
    clock.advance(Duration::from_secs(60));
    assert_eq!(denied(&access, "admin", PASSWORD), DeniedFor::Locked, "the right one, too");
    access.login(known, "admin", PASSWORD).unwrap();
    access.change_account(id, &AccountChange { unlock: true, ..AccountChange::default() }, None).unwrap();
    assert!(!access.account(id).unwrap().locked);
    access.login(HERE, "admin", PASSWORD).unwrap();
}

#[test]
fn a_user_who_does_not_exist_costs_as_much_as_a_wrong_password() {
    let (access, clock, _) = empty();
    access.add_account(&new("admin", Role::Administrator)).unwrap();
    let mut times = [Duration::MAX; 2];
    for round in 0..8 {
        for (name, time) in ["admin", "nobody"].into_iter().zip(&mut times) {
            let begin = Instant::now();
            assert_ne!(denied(&access, name, &format!("guess {round}")), DeniedFor::Busy);
            *time = begin.elapsed().min(*time);
            clock.advance(Duration::from_secs(600));
        }
    }
    let [wrong, unknown] = times;
    assert!(unknown * 3 > wrong && wrong * 3 > unknown, "{wrong:?} {unknown:?}");
    let begin = Instant::now();
    access.login(HERE, "admin", PASSWORD).unwrap();
    let first = begin.elapsed();
    let begin = Instant::now();
    access.login(HERE, "admin", PASSWORD).unwrap();
    assert!(begin.elapsed() * 4 < first, "the right one is remembered for a while");
}

#[test]
fn few_passwords_are_hashed_at_a_time() {
    let (access, ..) = empty();
    let places: Vec<_> = (0..HASHES_MAX).map(|_| access.hashing().unwrap()).collect();
    let denied = access.login(HERE, "admin", PASSWORD).unwrap_err();
    assert_eq!((denied.reason, denied.retry_after), (DeniedFor::Busy, Some(BUSY)));
    assert_eq!(access.add_account(&new("admin", Role::Administrator)).unwrap_err(), Mistake::Busy);
    drop(places);
    access.add_account(&new("admin", Role::Administrator)).unwrap();
}

#[test]
fn basic_authentication_can_be_disabled() {
    let (access, ..) = empty();
    access.add_account(&new("admin", Role::Administrator)).unwrap();
    access.basic(HERE, "admin", PASSWORD).unwrap();
    access.change_settings(&SettingsChange { basic_auth: Some(false), ..SettingsChange::default() }).unwrap();
    assert_eq!(access.basic(HERE, "admin", PASSWORD).unwrap_err().reason, DeniedFor::BasicDisabled);
    access.login(HERE, "admin", PASSWORD).unwrap();
}

#[test]
fn secrets_are_not_in_debug_output_or_in_the_file() {
    let (access, _, memory) = empty();
    access.add_account(&new("admin", Role::Administrator)).unwrap();
    let user = access.login(HERE, "admin", PASSWORD).unwrap();
    let (session, token) = access.open_session(&user, HERE).unwrap();
    let shown = format!("{access:?} {session:?} {token:?} {user:?} {:?} {}", access.accounts(), memory.text());
    assert!(!shown.contains(PASSWORD) && !shown.contains(token.text()), "{shown}");
}
