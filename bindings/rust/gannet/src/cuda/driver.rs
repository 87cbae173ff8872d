//! The few functions of the CUDA driver that memory and streams of the caller need. The driver is
//! opened when one of them is first asked for, so that a program starts without one as well.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::device::Device;
use crate::error::{Error, Result, Status};

/// A `CUdeviceptr`.
pub(super) type Address = u64;

extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}
const RTLD_NOW: c_int = 2;

macro_rules! driver {
    ($($name:ident = $symbol:literal ($($kind:ty),*);)+) => {
        /// Entries of the driver; each answers a `CUresult`.
        pub(super) struct Driver {
            $(pub(super) $name: unsafe extern "C" fn($($kind),*) -> c_int,)+
        }

        impl Driver {
            fn open() -> std::result::Result<Driver, String> {
                // SAFETY: the name is a C string, and NVIDIA's driver may be opened by anyone.
                let library = unsafe { dlopen(c"libcuda.so.1".as_ptr(), RTLD_NOW) };
                if library.is_null() {
                    return Err("there is no CUDA driver (libcuda.so.1)".into());
                }
                Ok(Driver {
                    $($name: {
                        // SAFETY: as above.
                        let entry = unsafe { dlsym(library, $symbol.as_ptr()) };
                        if entry.is_null() {
                            return Err(format!("the CUDA driver lacks {:?}", $symbol));
                        }
                        // SAFETY: the driver's own header declares the function so.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($kind),*) -> c_int>(entry)
                        }
                    },)+
                })
            }
        }
    };
}

driver! {
    init = c"cuInit" (u32);
    error_text = c"cuGetErrorString" (c_int, *mut *const c_char);
    device = c"cuDeviceGet" (*mut c_int, c_int);
    retain = c"cuDevicePrimaryCtxRetain" (*mut *mut c_void, c_int);
    push = c"cuCtxPushCurrent_v2" (*mut c_void);
    pop = c"cuCtxPopCurrent_v2" (*mut *mut c_void);
    take = c"cuMemAlloc_v2" (*mut Address, usize);
    free = c"cuMemFree_v2" (Address);
    set = c"cuMemsetD8Async" (Address, u8, usize, *mut c_void);
    to_device = c"cuMemcpyHtoDAsync_v2" (Address, *const c_void, usize, *mut c_void);
    to_host = c"cuMemcpyDtoHAsync_v2" (*mut c_void, Address, usize, *mut c_void);
    stream_create = c"cuStreamCreate" (*mut *mut c_void, u32);
    stream_wait = c"cuStreamSynchronize" (*mut c_void);
    stream_destroy = c"cuStreamDestroy_v2" (*mut c_void);
}

fn driver() -> Result<&'static Driver> {
    static DRIVER: OnceLock<std::result::Result<Driver, String>> = OnceLock::new();
    let opened = DRIVER.get_or_init(|| {
        let driver = Driver::open()?;
        // SAFETY: zero is the only legal flag.
        match unsafe { (driver.init)(0) } {
            0 => Ok(driver),
            code => Err(format!("the CUDA driver does not start: {}", text_of(&driver, code))),
        }
    });
    opened.as_ref().map_err(|text| Error::new(Status::NoDevice, text.as_str()))
}

fn text_of(driver: &Driver, code: c_int) -> String {
    let mut text = null();
    // SAFETY: the text is static.
    unsafe {
        (driver.error_text)(code, &mut text);
        if text.is_null() {
            return format!("CUDA error {code}");
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

/// The context of a device that the CUDA runtime, and so Gannet, uses too. It stays until the process
/// ends, as it does for the runtime.
pub(super) struct Primary {
    pub(super) device: Device,
    driver: &'static Driver,
    context: *mut c_void,
}

// SAFETY: a CUcontext may be used from any thread.
unsafe impl Send for Primary {}
unsafe impl Sync for Primary {}

/// The stream of the calling thread in the driver's per-thread model, for copies that are waited for.
pub(super) const OWN_STREAM: *mut c_void = 2 as *mut c_void;

impl Primary {
    pub(super) fn of(device: Device) -> Result<Arc<Primary>> {
        static KNOWN: Mutex<Option<HashMap<u32, Arc<Primary>>>> = Mutex::new(None);
        let Device::Cuda(number) = device else {
            let text = format!("device is {device}; this memory is of CUDA devices");
            return Err(Error::new(Status::InvalidArgument, text));
        };
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_default();
        if let Some(primary) = known.get(&number) {
            return Ok(Arc::clone(primary));
        }
        let driver = driver()?;
        let (mut ordinal, mut context) = (0, null_mut());
        let wanted = c_int::try_from(number).unwrap_or(c_int::MAX);
        // SAFETY: both places live through the calls.
        let code = unsafe {
            match (driver.device)(&mut ordinal, wanted) {
                0 => (driver.retain)(&mut context, ordinal),
                code => code,
            }
        };
        if code != 0 {
            let text = format!("{device}: {}", text_of(driver, code));
            return Err(Error::of_cuda(Status::NoDevice, code, text));
        }
        let primary = Arc::new(Primary { device, driver, context });
        known.insert(number, Arc::clone(&primary));
        Ok(primary)
    }

    /// Makes a call with the context current on this thread.
    pub(super) fn call(&self, what: &str, call: impl FnOnce(&Driver) -> c_int) -> Result<()> {
        let mut popped = null_mut();
        // SAFETY: the context lives as long as the process.
        let code = unsafe {
            match (self.driver.push)(self.context) {
                0 => {
                    let code = call(self.driver);
                    (self.driver.pop)(&mut popped);
                    code
                }
                code => code,
            }
        };
        let status = match code {
            0 => return Ok(()),
            1 => Status::InvalidArgument,
            2 => Status::DeviceNoMemory,
            _ => Status::DeviceLost,
        };
        let text = format!("{what} on {}: {}", self.device, text_of(self.driver, code));
        Err(Error::of_cuda(status, code, text))
    }
}
