//! Section 7 of the header.

use std::fmt;
use std::ptr::null;

use crate::error::{check, Result};
use crate::macros::Raw;
use crate::sys;
use crate::version::static_text;

/// Where a call runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Device {
    /// The processor.
    Cpu,
    /// The CUDA device with this number, from 0.
    Cuda(u32),
}

impl Raw for Device {
    type Out = i32;
    fn raw(self) -> i32 {
        match self {
            Device::Cpu => sys::ANN_DEVICE_CPU as i32,
            // Numbers that no device can have become one that the library refuses.
            Device::Cuda(i) => i.saturating_add(sys::ANN_DEVICE_CUDA).min(i32::MAX as u32) as i32,
        }
    }
}

/// As `cpu` or `cuda:0`.
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.pad("cpu"),
            Device::Cuda(i) => f.pad(&format!("cuda:{i}")),
        }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Device {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// How many devices there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DeviceCount {
    /// Devices, the CPU counted: at least 1.
    pub count: u32,
    /// Why there is no CUDA device; empty if there is one.
    pub reason: &'static str,
}

/// The description of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Which one.
    pub device: Device,
    /// Its name.
    pub name: String,
    /// Bytes of memory.
    pub memory_total: u64,
    /// Bytes free at the moment of asking.
    pub memory_free: u64,
    /// Hardware threads, or multiprocessors.
    pub compute_units: u32,
    /// CUDA: 10 * major + minor. CPU: 0.
    pub capability: u32,
}

/// Counts the devices. This asks the CUDA driver, which costs some 100 ms at first and spoils CUDA
/// in children forked later; nothing on the CPU path does that.
///
/// # Errors
///
/// None that a caller can cause: that there is no driver is no error.
///
/// # Examples
///
/// ```
/// assert!(gannet::device_count()?.count >= 1);
/// # Ok::<(), gannet::Error>(())
/// ```
pub fn device_count() -> Result<DeviceCount> {
    let (mut count, mut reason) = (0, null());
    // SAFETY: count and reason live through the call.
    check(|error| unsafe { sys::ann_device_count(&mut count, &mut reason, error) })?;
    // SAFETY: the text lives as long as the library.
    Ok(DeviceCount { count, reason: unsafe { static_text(reason) } })
}

/// Describes a device. [`Device::Cpu`] touches no driver.
///
/// # Errors
///
/// [`NoDevice`](crate::Status::NoDevice).
///
/// # Examples
///
/// ```
/// let cpu = gannet::device_info(gannet::Device::Cpu)?;
/// assert!(cpu.compute_units >= 1);
/// # Ok::<(), gannet::Error>(())
/// ```
pub fn device_info(device: Device) -> Result<DeviceInfo> {
    let mut raw = sys::ann_device_info::default();
    // SAFETY: raw lives through the call.
    check(|error| unsafe { sys::ann_device_get_info(device.raw(), &mut raw, error) })?;
    let name = raw.name.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
    Ok(DeviceInfo {
        device,
        name: String::from_utf8(name).unwrap_or_default(),
        memory_total: raw.memory_total,
        memory_free: raw.memory_free,
        compute_units: raw.compute_units,
        capability: raw.capability,
    })
}

/// Describes every device, the CPU first. As [`device_count`], this asks the CUDA driver.
///
/// # Errors
///
/// [`NoDevice`](crate::Status::NoDevice) for a device that went away meanwhile.
///
/// # Examples
///
/// ```
/// for device in gannet::devices()? {
///     println!("{:?}: {}", device.device, device.name);
/// }
/// # Ok::<(), gannet::Error>(())
/// ```
pub fn devices() -> Result<Vec<DeviceInfo>> {
    let cuda = (0..device_count()?.count.saturating_sub(1)).map(Device::Cuda);
    std::iter::once(Device::Cpu).chain(cuda).map(device_info).collect()
}
