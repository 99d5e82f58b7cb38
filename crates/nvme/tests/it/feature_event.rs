//! Feature values and asynchronous events: known dwords, and round trips of all.

use ebof_nvme::event::{AsyncEvent, EventType};
use ebof_nvme::feature::{
    Arbitration, AsyncEventConfig, Capabilities, EnduranceGroupEvents, ErrorRecovery, Fid, GetFeature,
    HostBehaviorSupport, KeepAliveTimer, LbaStatusAttributes, NonOperationalPower, NumberOfQueues, PowerManagement,
    ReservationMask, ReservationPersistence, SanitizeConfig, Select, SetFeature, TemperatureThreshold,
    ThermalManagement, ThresholdType, Timestamp, VolatileWriteCache, WriteAtomicity, WriteProtection,
};
use ebof_nvme::log::{Lid, ReservationEvent};
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

#[test]
fn dword_10_has_the_feature_and_the_kind_of_value() {
    let get = GetFeature { fid: Fid::ASYNC_EVENT_CONFIG, select: Select::Supported };
    assert_eq!(get.encode(), 0x30b);
    assert_eq!(GetFeature::decode(0xffff_fb0b), get);
    assert_eq!(GetFeature::decode(0x0000_0407).select, Select::Reserved(4));
    let set = SetFeature { fid: Fid::VOLATILE_WRITE_CACHE, save: true };
    assert_eq!(set.encode(), 0x8000_0006);
    assert_eq!(SetFeature::decode(0x8000_0006), set);
    assert!(!SetFeature::decode(0x7fff_ff06).save);
}

#[test]
fn values_have_the_layout_of_the_specification() {
    let arbitration = Arbitration { burst_log2: 6, low_weight: 1, medium_weight: 2, high_weight: 256 };
    assert_eq!(arbitration.encode(), 0xff01_0006);
    assert_eq!(arbitration.burst_commands(), Some(64));
    assert_eq!(Arbitration::decode(7).burst_commands(), None);
    assert_eq!(PowerManagement { power_state: 3, workload_hint: 2 }.encode(), 0x43);
    let threshold = TemperatureThreshold { kelvin: 0x157, sensor: 2, threshold: ThresholdType::Under, hysteresis: 5 };
    assert_eq!(threshold.encode(), 0x0152_0157);
    assert_eq!(ErrorRecovery { time_limit_100ms: 20, deallocated_error: true }.encode(), 0x0001_0014);
    assert_eq!(VolatileWriteCache { enabled: true }.encode(), 1);
    assert_eq!(WriteAtomicity { disable_normal: true }.encode(), 1);
    assert_eq!(WriteProtection::Permanent.encode(), 3);
    assert_eq!(Capabilities { saveable: false, namespace_specific: true, changeable: true }.encode(), 6);
}

#[test]
fn values_of_drives_have_the_layout_of_the_specification() {
    assert_eq!(ThermalManagement { light_kelvin: 0x150, heavy_kelvin: 0x160 }.encode(), 0x0150_0160);
    assert_eq!(EnduranceGroupEvents { group: 1, warnings: 4 }.encode(), 0x0004_0001);
    assert_eq!(LbaStatusAttributes { report_interval_100ms: 1, poll_interval_100ms: 2 }.encode(), 0x0002_0001);
    let mask = ReservationMask::decode(0xffff_fff7);
    assert!(mask.masks(ReservationEvent::RegistrationPreempted) && mask.masks(ReservationEvent::ReservationReleased));
    assert!(!mask.masks(ReservationEvent::ReservationPreempted));
    assert!(ReservationPersistence::decode(1).persist && SanitizeConfig::decode(1).warn);
    assert!(NonOperationalPower::decode(3).permissive);
}

#[test]
fn numbers_of_queues_are_0s_based_only_on_the_wire() {
    let queues = NumberOfQueues { submission: 8, completion: 4 };
    assert_eq!(queues.encode(), 0x0003_0007);
    assert_eq!(NumberOfQueues::decode(0x0003_0007), Some(queues));
    assert_eq!(NumberOfQueues::decode(0x0000_ffff), None);
    assert_eq!(NumberOfQueues::decode(0xffff_0000), None);
    assert_eq!(NumberOfQueues::decode(0xfffe_fffe), Some(NumberOfQueues { submission: 65535, completion: 65535 }));
}

#[test]
fn a_keep_alive_time_out_is_rounded_up_to_the_granularity() {
    let rounded = |timeout_ms, granularity| KeepAliveTimer { timeout_ms }.rounded_up(granularity).timeout_ms;
    assert_eq!([rounded(0, 1000), rounded(1, 1000), rounded(5000, 1000), rounded(5001, 100)], [0, 1000, 5000, 5100]);
    assert_eq!((rounded(5, 0), rounded(u32::MAX, 1000)), (5, u32::MAX));
}

#[test]
fn feature_data_has_the_layout_of_the_specification() {
    let host =
        HostBehaviorSupport { acre: 1, etdas: 2, lbafee: 3, hdisns: 4, cdfe: 0x605.into(), ..Default::default() };
    assert_eq!(host.as_bytes()[..7], [1, 2, 3, 4, 5, 6, 0]);
    let time = Timestamp::new(0x0102_0304_0506).with_attributes(true, true);
    assert_eq!(time.as_bytes(), [6, 5, 4, 3, 2, 1, 3, 0]);
    assert_eq!(time.milliseconds(), 0x0102_0304_0506);
    assert!(time.set_by_host() && time.may_have_stopped());
    let since_reset = Timestamp::read_from_bytes(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]).unwrap();
    assert_eq!((since_reset.milliseconds(), since_reset.set_by_host()), ((1 << 48) - 1, false));
}

#[test]
fn events_are_the_dwords_that_linux_expects() {
    for (event, dword) in [
        (AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED, 0x0004_0002),
        (AsyncEvent::FIRMWARE_ACTIVATION_STARTING, 0x0003_0102),
        (AsyncEvent::ANA_CHANGE, 0x000c_0302),
        (AsyncEvent::DISCOVERY_LOG_CHANGE, 0x0070_f002),
        (AsyncEvent::CROSS_CONTROLLER_RESET_COMPLETED, 0x001e_f402),
        (AsyncEvent::PERSISTENT_INTERNAL_ERROR, 0x0001_0300),
        (AsyncEvent::TEMPERATURE_THRESHOLD, 0x0002_0101),
        (AsyncEvent::RESERVATION_LOG_AVAILABLE, 0x0080_0006),
        (AsyncEvent::SANITIZE_COMPLETED, 0x0081_0106),
        (AsyncEvent::SANITIZE_VERIFICATION, 0x0081_0306),
    ] {
        assert_eq!(event.encode(), dword, "{}", event.name().unwrap());
        assert_eq!(AsyncEvent::decode(dword), event);
    }
    assert_eq!(AsyncEvent::decode(0x0070_f002).name(), Some("discovery log page change"));
    assert_eq!(AsyncEvent::decode(0x0000_4202).name(), None);
    assert_eq!(AsyncEvent::decode(0x00c0_0007).log_page, Lid(0xc0));
}

#[test]
fn the_configuration_enables_the_events_of_its_bits() {
    for (event, bit) in [
        (AsyncEvent::SPARE_BELOW_THRESHOLD, 0),
        (AsyncEvent::TEMPERATURE_THRESHOLD, 1),
        (AsyncEvent::RELIABILITY, 2),
        (AsyncEvent::RELIABILITY, 3),
        (AsyncEvent::RELIABILITY, 4),
        (AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED, 8),
        (AsyncEvent::FIRMWARE_ACTIVATION_STARTING, 9),
        (AsyncEvent::TELEMETRY_LOG_CHANGED, 10),
        (AsyncEvent::ANA_CHANGE, 11),
        (AsyncEvent::PREDICTABLE_LATENCY_CHANGE, 12),
        (AsyncEvent::LBA_STATUS_ALERT, 13),
        (AsyncEvent::ENDURANCE_GROUP_CHANGE, 14),
        (AsyncEvent::decode(0x0003), 15),
        (AsyncEvent::decode(0x0103), 16),
        (AsyncEvent::CROSS_CONTROLLER_RESET_COMPLETED, 20),
        (AsyncEvent::ZONE_DESCRIPTOR_CHANGED, 27),
        (AsyncEvent::DISCOVERY_LOG_CHANGE, 31),
    ] {
        assert!(event.is_enabled_by(AsyncEventConfig(1 << bit)), "{event:?}");
        assert!(!event.is_enabled_by(AsyncEventConfig(0)), "{event:?}");
    }
    assert!(!AsyncEvent::ANA_CHANGE.is_enabled_by(AsyncEventConfig::NAMESPACE_ATTRIBUTE));
    assert!(AsyncEvent::TRANSIENT_INTERNAL_ERROR.is_enabled_by(AsyncEventConfig(0)));
    let both = AsyncEventConfig::ANA_CHANGE.with(AsyncEventConfig::DISCOVERY_LOG);
    assert!(both.contains(AsyncEventConfig::ANA_CHANGE) && !both.contains(AsyncEventConfig::SPARE));
}

proptest! {
    #[test]
    fn any_dword_decodes_and_its_defined_bits_round_trip(dword in any::<u32>()) {
        prop_assert_eq!(Arbitration::decode(dword).encode(), dword & 0xffff_ff07);
        prop_assert_eq!(PowerManagement::decode(dword).encode(), dword & 0xff);
        prop_assert_eq!(TemperatureThreshold::decode(dword).encode(), dword & 0x01ff_ffff);
        prop_assert_eq!(ErrorRecovery::decode(dword).encode(), dword & 0x1_ffff);
        prop_assert_eq!(VolatileWriteCache::decode(dword).encode(), dword & 1);
        prop_assert_eq!(WriteAtomicity::decode(dword).encode(), dword & 1);
        prop_assert_eq!(KeepAliveTimer::decode(dword).encode(), dword);
        prop_assert_eq!(ThermalManagement::decode(dword).encode(), dword);
        prop_assert_eq!(NonOperationalPower::decode(dword).encode(), dword & 1);
        prop_assert_eq!(LbaStatusAttributes::decode(dword).encode(), dword);
        prop_assert_eq!(SanitizeConfig::decode(dword).encode(), dword & 1);
        prop_assert_eq!(EnduranceGroupEvents::decode(dword).encode(), dword & 0x00ff_ffff);
        prop_assert_eq!(ReservationMask::decode(dword).encode(), dword & 0x0e);
        prop_assert_eq!(ReservationPersistence::decode(dword).encode(), dword & 1);
        prop_assert_eq!(WriteProtection::decode(dword).encode(), dword & 7);
        prop_assert_eq!(Capabilities::decode(dword).encode(), dword & 7);
        prop_assert_eq!(GetFeature::decode(dword).encode(), dword & 0x7ff);
        prop_assert_eq!(SetFeature::decode(dword).encode(), dword & 0x8000_00ff);
        prop_assert_eq!(AsyncEvent::decode(dword).encode(), dword & 0x00ff_ff07);
        prop_assert!(usize::from(AsyncEvent::decode(dword).kind.encode()) < EventType::COUNT);
        if let Some(queues) = NumberOfQueues::decode(dword) {
            prop_assert_eq!(queues.encode(), dword);
        }
    }
}
